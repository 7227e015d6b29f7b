//! A filter that keeps packets away from a parked socket.
//!
//! The caller of a take diverts packets at the device. One that had passed there before may still be on its way to the socket, in the
//! backlog of another processor or of another network namespace. The parked socket would acknowledge its bytes, which nobody
//! delivers. Dropped, it is sent again by the peer, and diverted.

use crate::kernel::{CallError, drop_packets};
use crate::options;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// From now on no packet reaches the socket. A take leaves sockets alone to which the program has attached a filter.
pub(crate) fn close(fd: BorrowedFd) -> Result<(), CallError> {
    drop_packets(fd)
}

/// Packets reach the socket again, if they did not.
pub(crate) fn open(fd: BorrowedFd) -> Result<(), CallError> {
    match options::SO_DETACH_FILTER.set(fd, 0) {
        Err(error) if error.source != Errno::NOENT => Err(error),
        _ => Ok(()),
    }
}
