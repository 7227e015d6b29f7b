//! Connections and other descriptors for the program, and the harness's own questions about them, past the library.

use std::time::{Duration, Instant};

use libc::c_int;
use sidestep_posix::hosts;
use sidestep_posix::sys::net::{self, Addr, Family};
use sidestep_posix::sys::{epoll, fds, io};
use sidestep_sys::tcp;

use crate::calls::{self, Shape};
use crate::program::Kind;

const WARM_BYTES: usize = 64;

fn family(v6: bool) -> Family {
    if v6 { Family::V6 } else { Family::V4 }
}

/// A listener and its port.
pub fn listen(v6: bool) -> (i32, u16) {
    listen_with(v6, false)
}

pub fn listen_with(v6: bool, nonblock: bool) -> (i32, u16) {
    let fd = net::server_socket(family(v6), libc::SOCK_CLOEXEC | if nonblock { libc::SOCK_NONBLOCK } else { 0 });
    net::bind(fd, &Addr::server(family(v6), 0)).expect("bind");
    net::listen(fd, 16).expect("listen");
    (fd, net::getsockname(fd).port())
}

/// Switches Nagle's algorithm off: with it, the arrival of bytes would depend on timing.
fn at_once(fd: i32) -> i32 {
    net::set_nodelay(fd);
    fd
}

pub fn connect(v6: bool, port: u16) -> i32 {
    let fd = net::socket(family(v6), libc::SOCK_CLOEXEC);
    net::connect(fd, &Addr::server(family(v6), port)).expect("connect");
    at_once(fd)
}

pub fn accept(listener: i32) -> i32 {
    let fd = net::accept4(listener, libc::SOCK_CLOEXEC).expect("accept4") as i32;
    fds::close(listener).expect("close");
    at_once(fd)
}

pub fn make(kind: Kind) -> Vec<i32> {
    match kind {
        Kind::Pipe => {
            let (read, write) = fds::pipe(libc::O_NONBLOCK | libc::O_CLOEXEC);
            vec![read, write]
        }
        Kind::UnixPair => {
            let (a, b) = fds::unix_pair();
            fds::set_nonblocking(a, true);
            fds::set_nonblocking(b, true);
            vec![a, b]
        }
        Kind::Udp => vec![plain_socket(libc::SOCK_DGRAM | libc::SOCK_NONBLOCK)],
        Kind::Tcp => vec![net::socket(Family::V4, libc::SOCK_CLOEXEC)],
        Kind::Tcp6 => vec![net::socket(Family::V6, libc::SOCK_CLOEXEC)],
        Kind::File => vec![file()],
        Kind::EventFd => vec![fds::eventfd(0)],
        Kind::Epoll => vec![epoll::Epoll::new().fd],
    }
}

fn plain_socket(kind: c_int) -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::socket(libc::AF_INET, kind | libc::SOCK_CLOEXEC, 0) }
}

/// A file in memory with the length of one page.
fn file() -> i32 {
    // SAFETY: the name is a terminated string.
    let fd = unsafe { libc::memfd_create(c"twin".as_ptr(), libc::MFD_CLOEXEC) };
    let bytes = crate::data::bytes(9999, 0, 4096);
    assert_eq!(io::write(fd, &bytes), Ok(bytes.len()), "write to a file");
    // SAFETY: no pointers.
    unsafe { libc::lseek(fd, 0, libc::SEEK_SET) };
    fd
}

/// Returns 0 if all went well.
pub fn warm_send(fd: i32) -> i64 {
    let sent = io::send(fd, &[b'w'; WARM_BYTES], libc::MSG_NOSIGNAL);
    i64::from(sent != Ok(WARM_BYTES))
}

pub fn warm_recv(fd: i32) -> i64 {
    let mut bytes = [0; WARM_BYTES];
    let got = io::recv(fd, &mut bytes, libc::MSG_WAITALL);
    i64::from(got != Ok(WARM_BYTES) || bytes != [b'w'; WARM_BYTES])
}

/// Number of the kernel's bytes that the program has read; -1: unknown.
pub fn consumed(fd: i32) -> i64 {
    match tcp::consumed(fd) {
        tcp::Consumed::Bytes(n) => n as i64,
        _ => -1,
    }
}

/// The file that a descriptor stands for.
pub fn inode(fd: i32) -> Option<u64> {
    // SAFETY: integers: all zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills in a live value.
    (unsafe { libc::fstat(fd, &mut stat) } == 0).then_some(stat.st_ino)
}

/// The time limit of a call with this name on this descriptor by SO_RCVTIMEO or SO_SNDTIMEO, if it is short.
pub fn own_timeout_ms(call: &str, fd: i32) -> Option<u32> {
    let name = match calls::shape(call) {
        Shape::Receives => libc::SO_RCVTIMEO,
        Shape::Sends => libc::SO_SNDTIMEO,
        Shape::Other if call.starts_with("accept") => libc::SO_RCVTIMEO,
        Shape::Other => return None,
    };
    let time = tcp::option::<[i64; 2]>(fd, libc::SOL_SOCKET, name).ok()?;
    let ms = time[0].checked_mul(1000)?.checked_add(time[1] / 1000)?;
    (1..=1000).contains(&ms).then_some(ms as u32)
}

/// SIOCOUTQNSD: bytes that the kernel has not put on the wire yet.
const SIOCOUTQNSD: usize = 0x894b;
const SENT_MS: u128 = 5;
/// The kernel delays an acknowledgement by up to 200 ms.
const ACKNOWLEDGED_MS: u128 = 250;

/// Waits until all bytes have arrived, unless buffers are full. Over loopback they do so once the kernel has sent them, at once; the
/// stack sends them a moment later, and only an acknowledgement tells that.
pub fn until_sent(fd: i32) {
    if hosts::has_stack() {
        return wait_while(ACKNOWLEDGED_MS, || fds::unacknowledged(fd).is_ok_and(|n| n > 0));
    }
    wait_while(SENT_MS, || has_unsent(fd));
}

/// Waits until the peer's kernel has acknowledged the end of the stream, unless buffers are full. The acknowledgement is an
/// edge, and may be delayed: whether one wait or two report both would depend on timing.
pub fn until_acknowledged(fd: i32) {
    wait_while(ACKNOWLEDGED_MS, || !has_unsent(fd) && tcp::unacknowledged(fd).is_ok_and(|n| n > 0));
}

fn has_unsent(fd: i32) -> bool {
    let mut n: c_int = 0;
    // SAFETY: the kernel writes one int.
    let asked =
        unsafe { sidestep_sys::call(libc::SYS_ioctl, [fd as usize, SIOCOUTQNSD, &raw mut n as usize, 0, 0, 0]) };
    asked.is_ok() && n > 0
}

fn wait_while(most_ms: u128, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while holds() && started.elapsed().as_millis() < most_ms {
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_shutdown_no_edge_is_still_to_come() {
        let (listener, port) = listen(false);
        let end = connect(false, port);
        let peer = accept(listener);
        assert_eq!(io::send(end, b"delays acknowledgements", 0), Ok(23));
        assert_eq!(io::recv(peer, &mut [0; 23], libc::MSG_WAITALL), Ok(23));
        let set = epoll::Epoll::new();
        set.add(end, (libc::EPOLLIN | libc::EPOLLET) as u32);
        net::shutdown(end, libc::SHUT_RDWR).expect("shutdown");
        until_acknowledged(end);
        assert_eq!(set.wait(0).len(), 1, "the end itself");
        assert_eq!(set.wait(ACKNOWLEDGED_MS as i32).len(), 0, "its acknowledgement");
    }
}
