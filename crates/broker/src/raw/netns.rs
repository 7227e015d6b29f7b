//! Network namespaces of sockets.

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;

/// ioctl of a socket: its network namespace. Needs CAP_NET_ADMIN there.
const SIOCGSKNS: libc::c_ulong = 0x894C;
/// ioctl of a namespace: the user namespace that owns it, if that is ours or below ours.
const NS_GET_USERNS: libc::c_ulong = 0xb701;

pub fn of_socket(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    ask(socket, SIOCGSKNS)
}

pub fn owner(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    ask(namespace, NS_GET_USERNS)
}

/// An ioctl without an argument that returns a new descriptor.
fn ask(of: BorrowedFd<'_>, request: libc::c_ulong) -> io::Result<OwnedFd> {
    // SAFETY: both requests take no argument.
    let fd = unsafe { libc::ioctl(of.as_raw_fd(), request) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Moves this thread into the namespace. Needs CAP_SYS_ADMIN.
pub fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: concerns only this thread; no memory involved.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
