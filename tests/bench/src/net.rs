//! Sockets of IPv4.

use std::io::{self, Write};
use std::mem::size_of;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Long enough for a client that opens its connections faster than they are accepted.
const BACKLOG: i32 = 4096;

pub fn listen(at: SocketAddrV4) -> Result<TcpListener, String> {
    let fd = tcp_socket()?;
    let address = sockaddr(at);
    // SAFETY: the descriptor is ours and open; the address is a whole sockaddr_in and its length is passed with it.
    let bound = unsafe {
        let address = (&raw const address).cast();
        libc::bind(fd.as_raw_fd(), address, size_of::<libc::sockaddr_in>() as u32) == 0
            && libc::listen(fd.as_raw_fd(), BACKLOG) == 0
    };
    if !bound {
        return Err(last(&format!("cannot listen on {at}")));
    }
    Ok(TcpListener::from(fd))
}

/// One line on standard output, at once.
pub fn say(line: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|e| format!("standard output: {e}"))
}

pub fn accept(listener: &TcpListener) -> Result<TcpStream, String> {
    let (stream, _) = listener.accept().map_err(|e| format!("accept: {e}"))?;
    nodelay(stream)
}

pub fn connect_to(at: SocketAddrV4) -> Result<TcpStream, String> {
    nodelay(connect(tcp_socket()?, at)?)
}

pub fn connect(socket: OwnedFd, to: SocketAddrV4) -> Result<TcpStream, String> {
    let address = sockaddr(to);
    // SAFETY: as in `listen`.
    let answer = unsafe {
        let at = (&raw const address).cast();
        libc::connect(socket.as_raw_fd(), at, size_of::<libc::sockaddr_in>() as u32)
    };
    if answer == 0 { Ok(TcpStream::from(socket)) } else { Err(last(&format!("cannot connect to {to}"))) }
}

/// The close of this socket will be a reset: it leaves no TIME_WAIT behind.
pub fn reset_at_close(fd: RawFd) -> Result<(), String> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option's value is a linger that lives on our stack, passed with its size.
    let answer = unsafe {
        let at = (&raw const linger).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, size_of::<libc::linger>() as u32)
    };
    if answer == 0 { Ok(()) } else { Err(last("SO_LINGER")) }
}

fn nodelay(stream: TcpStream) -> Result<TcpStream, String> {
    stream.set_nodelay(true).map_err(|e| format!("TCP_NODELAY: {e}"))?;
    Ok(stream)
}

pub fn tcp_socket() -> Result<OwnedFd, String> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(last("socket"));
    }
    // SAFETY: socket() has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// What failed and the system's reason.
pub fn last(what: &str) -> String {
    format!("{what}: {}", io::Error::last_os_error())
}
