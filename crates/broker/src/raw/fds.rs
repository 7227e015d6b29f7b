//! Descriptors that were inherited: by accident, and on purpose.

use rustix::fd::{FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;

/// Children get only stdin, stdout and stderr from now on. If a broker kept a pipe of the shell that started it, the pipe's
/// reader would wait for its end.
pub fn pass_on_only_stdio() {
    // SAFETY: only sets close-on-exec flags; no descriptor is closed here. A kernel without the call (before
    // 5.11) refuses it, and the child inherits more than it needs.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// The descriptor that the parent has opened for this process, from now on closed at exec. Call it once for each, before descriptors
/// are opened.
pub fn inherited(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: only sets a flag; a descriptor that is not open is refused.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(Errno::BADF);
    }
    // SAFETY: it is open. It was opened by the parent, and this function's caller takes it before this process opens
    // descriptors of its own, so nothing else here owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
