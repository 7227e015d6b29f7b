//! Whether a socket is still the connection that it was. The program has the socket, too, and may close its connection, connect it
//! anew or make it a listener at any moment; while it is in repair mode, the kernel even makes it a connection without a handshake.

use crate::info::{ESTABLISHED, Info};
use crate::kernel::{CallError, named};
use crate::names::Names;
use crate::options;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

/// `TCP_LISTEN` of net/tcp_states.h.
const LISTEN: u8 = 10;

/// Whether the socket is an established connection with these names.
pub(crate) fn is_still(fd: BorrowedFd, names: &Names) -> Result<bool, CallError> {
    if Info::read(fd)?.state() != ESTABLISHED {
        return Ok(false);
    }
    match Names::read(fd) {
        Ok(found) => Ok(found == *names),
        Err(error) if error.source == Errno::NOTCONN => Ok(false),
        Err(error) => Err(error),
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
