//! Which network namespace a thread is in, as programs of the kernel know it.

use std::io;
use std::mem::size_of_val;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// The cookie of the calling thread's network namespace: a number that no other namespace ever has (5.14).
pub fn cookie() -> io::Result<u64> {
    let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("[::1]:0"))?;
    let mut cookie = 0u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: `cookie` has room for `length` bytes, and both live until the call returns.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            std::ptr::from_mut(&mut cookie).cast(),
            &mut length,
        )
    };
    if outcome == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}
