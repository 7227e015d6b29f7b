//! Whether a socket is still the connection that it was, and no other socket has its addresses. The program has the socket, too, and may
//! close its connection, connect it anew or make it a listener at any moment; while it is in repair mode, the kernel even makes it a
//! connection without a handshake.

use crate::info::{ESTABLISHED, Info};
use crate::kernel::{CallError, named};
use crate::names::Names;
use crate::options;
use crate::repair;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketType, shutdown, socket};
use std::net::SocketAddr;

/// `TCP_LISTEN` of net/tcp_states.h.
const LISTEN: u8 = 10;

/// Whether the socket is an established connection with these names.
pub(crate) fn is_still(fd: BorrowedFd, names: &Names) -> Result<bool, CallError> {
    if Info::read(fd)?.state() != ESTABLISHED {
        return Ok(false);
    }
    Ok(found(fd)? == Some(*names))
}

/// Closes the socket if it is connected, but with none of these names. Repair mode has ended: what it is now, it stays.
pub(crate) fn expel(fd: BorrowedFd, ours: &[Names]) -> Result<(), CallError> {
    match found(fd)? {
        Some(names) if !ours.contains(&names) => repair::disconnect(fd),
        _ => Ok(()),
    }
}

/// Ends the connection of another socket that has these addresses, in the socket's network namespace. False: there is none, or the calling
/// thread is in another namespace.
pub(crate) fn end_intruder(fd: BorrowedFd, local: &SocketAddr, remote: &SocketAddr) -> bool {
    let is_here = || -> Result<bool, CallError> {
        let own = named("socket(2)", socket(AddressFamily::UNIX, SocketType::DGRAM, None))?;
        Ok(options::SO_NETNS_COOKIE.get(fd)? == options::SO_NETNS_COOKIE.get(own.as_fd())?)
    };
    is_here().unwrap_or(false) && sidestep_netlink::diag::destroy(local, remote).is_ok()
}

/// None: it has no peer.
fn found(fd: BorrowedFd) -> Result<Option<Names>, CallError> {
    match Names::read(fd) {
        Err(error) if error.source == Errno::NOTCONN => Ok(None),
        other => other.map(Some),
    }
}

/// Whether the program has made the socket a listener, which leaves repair mode to nobody. If so, it listens no more: it may have begun
/// while repair mode made the kernel ignore conflicts, at a port where another program listens.
pub(crate) fn end_listening(fd: BorrowedFd) -> Result<bool, CallError> {
    if Info::read(fd)?.state() != LISTEN {
        return Ok(false);
    }
    options::SO_REUSEADDR.set(fd, 0)?;
    named("shutdown(2)", shutdown(fd, Shutdown::Both))?;
    Ok(true)
}
