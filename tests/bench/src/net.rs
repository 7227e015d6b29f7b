//! Sockets on 127.0.0.1.

use std::io::{self, Write};
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::args::Args;

/// Long enough for a client that opens its connections faster than they are accepted.
const BACKLOG: i32 = 4096;

pub fn listen(sockbuf: usize) -> Result<TcpListener, String> {
    let fd = tcp_socket(sockbuf)?;
    let address = loopback(0);
    // SAFETY: the descriptor is ours and open; the address is a whole sockaddr_in and its length is passed with it.
    let bound = unsafe {
        let at = (&raw const address).cast();
        libc::bind(fd.as_raw_fd(), at, size_of::<libc::sockaddr_in>() as u32) == 0
            && libc::listen(fd.as_raw_fd(), BACKLOG) == 0
    };
    if !bound {
        return Err(last("cannot listen on 127.0.0.1"));
    }
    Ok(TcpListener::from(fd))
}

/// Tells whoever started us where to connect.
pub fn announce(listener: &TcpListener) -> Result<(), String> {
    let port = listener.local_addr().map_err(|e| format!("getsockname: {e}"))?.port();
    say(&format!("port {port}"))
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

/// Connects to `--port`.
pub fn connect(args: &Args, sockbuf: usize) -> Result<TcpStream, String> {
    connect_to(args.required("port")?, sockbuf)
}

pub fn connect_to(port: u16, sockbuf: usize) -> Result<TcpStream, String> {
    let fd = tcp_socket(sockbuf)?;
    let address = loopback(port);
    // SAFETY: as in `listen`.
    let answer = unsafe {
        let at = (&raw const address).cast();
        libc::connect(fd.as_raw_fd(), at, size_of::<libc::sockaddr_in>() as u32)
    };
    if answer != 0 {
        return Err(last(&format!("cannot connect to 127.0.0.1:{port}")));
    }
    nodelay(TcpStream::from(fd))
}

/// The receive buffer that the kernel gave us.
pub fn receive_buffer(fd: RawFd) -> i32 {
    let mut value = 0i32;
    let mut length = size_of::<i32>() as u32;
    // SAFETY: `value` and `length` are ours, and `length` is the size of `value`.
    unsafe {
        let at = (&raw mut value).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, at, &raw mut length);
    }
    value
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

/// Buffers must be set before listen() and connect(), or the window scale is agreed without them.
fn tcp_socket(sockbuf: usize) -> Result<OwnedFd, String> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(last("socket"));
    }
    // SAFETY: socket() has just given us this descriptor; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    if sockbuf > 0 {
        set_buffer(fd.as_raw_fd(), sockbuf, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?;
        set_buffer(fd.as_raw_fd(), sockbuf, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?;
    }
    Ok(fd)
}

/// With the privilege the size is met whatever `rmem_max` says; without it, as near as the kernel allows.
fn set_buffer(fd: RawFd, bytes: usize, force: i32, plain: i32) -> Result<(), String> {
    let value = i32::try_from(bytes).map_err(|_| format!("--sockbuf {bytes} is too large"))?;
    let done = [force, plain].into_iter().any(|option| {
        let at = (&raw const value).cast();
        // SAFETY: the option's value is an int that lives on our stack, passed with its size.
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, at, size_of::<i32>() as u32) == 0 }
    });
    if done { Ok(()) } else { Err(last("cannot set the socket buffer")) }
}

fn loopback(port: u16) -> libc::sockaddr_in {
    sockaddr(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

pub fn sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
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
