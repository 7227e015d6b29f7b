//! The addresses of a connection, as its socket tells them.

use crate::kernel::{CallError, named};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, getpeername, getsockname};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The addresses of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// By getsockname(2).
    pub local: SocketAddr,
    /// By getpeername(2).
    pub remote: SocketAddr,
}

impl Names {
    /// ENOTCONN: the socket has no peer.
    pub(crate) fn read(fd: BorrowedFd) -> Result<Names, CallError> {
        let address =
            |call, found: rustix::io::Result<SocketAddrAny>| named(call, found.and_then(SocketAddr::try_from));
        let local = address("getsockname(2)", getsockname(fd))?;
        let remote = address("getpeername(2)", getpeername(fd).and_then(|peer| peer.ok_or(Errno::NOTCONN)))?;
        Ok(Names { local, remote })
    }
}
