//! The members' socket from a service manager, by the protocol of sd_listen_fds(3). The manager holds the socket before the broker
//! starts, while it starts again, and after it has ended for lack of members, so a member always finds somebody who listens.

use crate::listen::{Address, BACKLOG, Listener};
use crate::raw::fds;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType, getsockname, sockopt};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Number of descriptors that were passed.
const COUNT: &str = "LISTEN_FDS";
/// The process to which they were passed.
const PROCESS: &str = "LISTEN_PID";
/// The first of them.
const FIRST: i32 = 3;

/// Why the passed socket is of no use.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum InheritedError {
    #[error(
        "the service manager passed {0} sockets; the broker takes one: write one ListenSequentialPacket= into its unit"
    )]
    Count(String),
    #[error("the service manager passed no open descriptor {FIRST}")]
    Closed(#[source] Errno),
    #[error("the passed descriptor is not a socket")]
    NoSocket(#[source] Errno),
    #[error(
        "the passed socket is not a listening UNIX socket of type SOCK_SEQPACKET: use ListenSequentialPacket= in its unit"
    )]
    Kind,
    #[error("the passed socket has no name that a member could connect to")]
    Unnamed,
    #[error("the passed socket does not receive credentials: write PassCredentials=yes into its unit")]
    NoCredentials,
    #[error("the passed socket is {passed}, and --address says {wanted}: leave one of them out")]
    OtherAddress { passed: Address, wanted: Address },
    #[error("cannot listen at the passed socket {address}")]
    Listen { address: Address, source: io::Error },
}

/// The passed socket and its address. None: none was passed to this process. `wanted`: the address of the options. Call it once,
/// before descriptors are opened.
pub fn take(wanted: Option<&Address>) -> Result<Option<(Listener, Address)>, InheritedError> {
    let own = std::process::id().to_string();
    let Some(count) = std::env::var(COUNT).ok().filter(|_| std::env::var(PROCESS).is_ok_and(|process| process == own))
    else {
        return Ok(None);
    };
    if count != "1" {
        return Err(InheritedError::Count(count));
    }
    let socket = fds::inherited(FIRST).map_err(InheritedError::Closed)?;
    let address = check(&socket)?;
    if let Some(wanted) = wanted.filter(|wanted| **wanted != address) {
        return Err(InheritedError::OtherAddress { passed: address, wanted: wanted.clone() });
    }
    // listen(2) once more sets the credentials that members see: this process's, not the manager's.
    let ready = rustix::io::ioctl_fionbio(&socket, true).and_then(|()| rustix::net::listen(&socket, BACKLOG));
    ready.map_err(|e| InheritedError::Listen { address: address.clone(), source: e.into() })?;
    Ok(Some((Listener::of_manager(socket), address)))
}

fn check(socket: &OwnedFd) -> Result<Address, InheritedError> {
    let listens = sockopt::socket_acceptconn(socket).map_err(InheritedError::NoSocket)?;
    let kind = sockopt::socket_type(socket).map_err(InheritedError::NoSocket)?;
    let name = SocketAddrUnix::try_from(getsockname(socket.as_fd()).map_err(InheritedError::NoSocket)?);
    let Some(name) = name.ok().filter(|_| listens && kind == SocketType::SEQPACKET) else {
        return Err(InheritedError::Kind);
    };
    // A member may send its first record before its connection is accepted, and that has to carry credentials.
    if !sockopt::socket_passcred(socket).map_err(InheritedError::NoSocket)? {
        return Err(InheritedError::NoCredentials);
    }
    address(&name).ok_or(InheritedError::Unnamed)
}

fn address(name: &SocketAddrUnix) -> Option<Address> {
    if let Some(name) = name.abstract_name() {
        return String::from_utf8(name.to_vec()).ok().map(Address::Abstract);
    }
    let path = PathBuf::from(OsString::from_vec(name.path_bytes()?.to_vec()));
    path.is_absolute().then_some(Address::Path(path))
}
