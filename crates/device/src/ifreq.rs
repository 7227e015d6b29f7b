//! Requests about a device by ioctl(2) (netdevice(7)).

use crate::error::errno;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::{self, Errno};

/// A request about the device of this name.
pub(crate) fn about(device: &str) -> io::Result<libc::ifreq> {
    // SAFETY: zeroes are an ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(Errno::NODEV);
    }
    for (to, byte) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = byte as libc::c_char;
    }
    Ok(request)
}

/// Makes the request.
///
/// # Safety
///
/// `command` takes an ifreq. What the request points to, if it is a pointer, is what the command expects, and lives during the call.
pub(crate) unsafe fn call(file: BorrowedFd, command: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the command's structure, as the caller says; it lives during the call.
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), command, request) };
    if outcome < 0 { errno(-std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)) } else { Ok(()) }
}
