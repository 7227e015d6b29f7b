//! Descriptors that were inherited by accident.

/// From now on a child gets stdin, stdout and stderr, and nothing else: a broker that kept a pipe of the shell
/// that started it would keep that pipe's reader waiting.
pub fn pass_on_only_stdio() {
    // SAFETY: only sets close-on-exec flags; no descriptor is closed here. A kernel without the call (before
    // 5.11) refuses it, and the child inherits more than it needs.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}
