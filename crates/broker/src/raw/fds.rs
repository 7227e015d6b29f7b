//! Descriptors that were inherited by accident.

/// Children get only stdin, stdout and stderr from now on. If a broker kept a pipe of the shell that started it, the pipe's
/// reader would wait for its end.
pub fn pass_on_only_stdio() {
    // SAFETY: only sets close-on-exec flags; no descriptor is closed here. A kernel without the call (before
    // 5.11) refuses it, and the child inherits more than it needs.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}
