//! Ways to receive.

use libc::{MSG_DONTWAIT, MSG_WAITFORONE};

use super::aio;
use crate::end::Recv;
use crate::sys::errno::Outcome;
use crate::sys::{Fd, fds, io, stdio};

/// Plain calls, which can be mixed at any size on any socket, come first; then the special ones.
pub const PLAIN: usize = 11;

/// Each with its name.
pub const ALL: &[(&str, Recv)] = &[
    ("read", io::read),
    ("readv", io::readv),
    ("recv", |fd, buf| io::recv(fd, buf, 0)),
    ("recvfrom", |fd, buf| io::recvfrom(fd, buf, 0)),
    ("recvmsg", |fd, buf| io::recvmsg(fd, buf, 0)),
    ("recvmmsg", |fd, buf| io::recvmmsg(fd, buf, MSG_WAITFORONE)),
    ("preadv2", |fd, buf| io::preadv2(fd, buf, 0)),
    ("under_read", io::under_read),
    ("read_chk", io::read_chk),
    ("recv_chk", |fd, buf| io::recv_chk(fd, buf, 0)),
    ("recvfrom_chk", |fd, buf| io::recvfrom_chk(fd, buf, 0)),
    ("preadv64v2", |fd, buf| io::preadv64v2(fd, buf, 0)),
    ("recv_dontwait", |fd, buf| io::recv(fd, buf, MSG_DONTWAIT)),
    ("recvmsg_dontwait", |fd, buf| io::recvmsg(fd, buf, MSG_DONTWAIT)),
    ("recvmmsg_dontwait", |fd, buf| io::recvmmsg(fd, buf, MSG_DONTWAIT)),
    ("peek_then_read", peek_then_read),
    ("syscall_read", io::syscall_read),
    ("syscall_recvfrom", |fd, buf| io::syscall_recvfrom(fd, buf, 0)),
    ("splice", splice),
    ("tee", tee),
    ("fread", fread),
    ("aio_read", aio::read),
];

/// A read must return the bytes that the peek showed.
fn peek_then_read(fd: Fd, buf: &mut [u8]) -> Outcome {
    let mut seen = vec![0; buf.len()];
    let n = io::recv(fd, &mut seen, libc::MSG_PEEK)?;
    let m = io::read(fd, &mut buf[..n])?;
    assert_eq!(buf[..m], seen[..m], "a peek showed other bytes than the read took");
    Ok(m)
}

fn take_from_pipe(pipe: (Fd, Fd), buf: &mut [u8]) -> Outcome {
    let mut done = 0;
    while done < buf.len() {
        done += io::read(pipe.0, &mut buf[done..])?;
    }
    fds::close(pipe.0)?;
    fds::close(pipe.1)?;
    Ok(done)
}

fn splice(fd: Fd, buf: &mut [u8]) -> Outcome {
    let pipe = fds::pipe(libc::O_CLOEXEC);
    let n = io::splice(fd, pipe.1, buf.len(), libc::SPLICE_F_MOVE)?;
    take_from_pipe(pipe, &mut buf[..n])
}

/// Splices into one pipe, and copies to a second: both must hold the same.
fn tee(fd: Fd, buf: &mut [u8]) -> Outcome {
    let (first, second) = (fds::pipe(libc::O_CLOEXEC), fds::pipe(libc::O_CLOEXEC));
    let n = io::splice(fd, first.1, buf.len(), 0)?;
    if n == 0 {
        return Ok(0);
    }
    let copied = io::tee(first.0, second.1, n, 0)?;
    let mut copy = vec![0; copied];
    take_from_pipe(second, &mut copy)?;
    take_from_pipe(first, &mut buf[..n])?;
    assert_eq!(copy, buf[..copied], "tee's copy differs from its source");
    Ok(n)
}

/// One byte through an unbuffered stream, which takes no further byte from the socket.
fn fread(fd: Fd, buf: &mut [u8]) -> Outcome {
    let mut stream = stdio::Stream::open(fds::dup(fd)? as Fd, c"r");
    stream.unbuffered();
    let done = stream.read(&mut buf[..1]);
    stream.close()?;
    Ok(done)
}
