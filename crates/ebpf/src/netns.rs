//! Which network namespace a thread is in, as programs of the kernel know it.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::mem::size_of_val;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

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

/// The cookie of the network namespace that this file stands for, such as `/proc/PID/ns/net`.
pub fn cookie_of(namespace: &Path) -> io::Result<u64> {
    inside(namespace, cookie)?
}

/// Does the work in the network namespace that this file stands for.
pub fn inside<T: Send>(namespace: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let file = File::open(namespace)?;
    // A thread of its own moves there and ends there.
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        });
        inside.join().expect("it does not panic")
    })
}
