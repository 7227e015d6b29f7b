//! Ways to send.

use libc::{MSG_MORE, MSG_NOSIGNAL};

use super::aio;
use crate::end::Send;
use crate::sys::errno::Outcome;
use crate::sys::{Fd, fds, files, io, stdio};

/// Plain calls, which can be mixed at any size on any socket, come first; then the special ones.
pub const PLAIN: usize = 9;

/// Each with its name.
pub const ALL: &[(&str, Send)] = &[
    ("write", io::write),
    ("writev", io::writev),
    ("send", |fd, buf| io::send(fd, buf, MSG_NOSIGNAL)),
    ("sendto", |fd, buf| io::sendto(fd, buf, 0)),
    ("sendmsg", |fd, buf| io::sendmsg(fd, buf, 0)),
    ("sendmmsg", |fd, buf| io::sendmmsg(fd, buf, 0)),
    ("pwritev2", |fd, buf| io::pwritev2(fd, buf, 0)),
    ("under_write", io::under_write),
    ("under_send", |fd, buf| io::under_send(fd, buf, 0)),
    ("pwritev64v2", |fd, buf| io::pwritev64v2(fd, buf, 0)),
    ("send_more", send_more),
    ("send_dontwait", |fd, buf| io::send(fd, buf, libc::MSG_DONTWAIT)),
    ("syscall_write", io::syscall_write),
    ("syscall_sendto", |fd, buf| io::syscall_sendto(fd, buf, 0)),
    ("sendfile", sendfile),
    ("sendfile64", sendfile64),
    ("splice", splice),
    ("tee", tee),
    ("vmsplice", vmsplice),
    ("dprintf", dprintf),
    ("fwrite", fwrite),
    ("aio_write", aio::write),
];

/// Bytes that a pipe of the default size takes in one write, whatever the alignment.
const PIPE_ROOM: usize = 60_000;

/// All but the last byte with MSG_MORE, which holds a partial segment back until more follows.
fn send_more(fd: Fd, buf: &[u8]) -> Outcome {
    let (last, head) = buf.split_last().expect("at least one byte");
    if head.is_empty() {
        return io::send(fd, buf, 0);
    }
    match io::send(fd, head, MSG_MORE)? {
        n if n < head.len() => Ok(n),
        n => io::send(fd, &[*last], 0).map(|m| n + m),
    }
}

/// From the middle of a file, with an offset that the call advances.
fn sendfile(fd: Fd, buf: &[u8]) -> Outcome {
    let file = files::holding(&[b"before", buf, b"after"].concat());
    let mut offset = 6;
    let done = io::sendfile(fd, file, Some(&mut offset), buf.len())?;
    assert_eq!(offset as usize, 6 + done, "sendfile moves the offset by what it sent");
    assert_eq!(files::offset(file), 0, "sendfile with an offset leaves the file's position");
    fds::close(file)?;
    Ok(done)
}

/// From the file's position.
fn sendfile64(fd: Fd, buf: &[u8]) -> Outcome {
    let file = files::holding(buf);
    let done = io::sendfile64(fd, file, None, buf.len())?;
    assert_eq!(files::offset(file) as usize, done, "sendfile without an offset moves the file");
    fds::close(file)?;
    Ok(done)
}

/// Empties a pipe into the socket and closes both pipe ends.
fn splice_out(pipe: (Fd, Fd), fd: Fd, n: usize) -> Outcome {
    let mut done = 0;
    while done < n {
        done += io::splice(pipe.0, fd, n - done, libc::SPLICE_F_MOVE)?;
    }
    fds::close(pipe.0)?;
    fds::close(pipe.1)?;
    Ok(done)
}

fn pipe_with(buf: &[u8]) -> ((Fd, Fd), usize) {
    let pipe = fds::pipe(libc::O_CLOEXEC);
    let n = buf.len().min(PIPE_ROOM);
    assert_eq!(io::write(pipe.1, &buf[..n]), Ok(n), "filling a pipe");
    (pipe, n)
}

fn splice(fd: Fd, buf: &[u8]) -> Outcome {
    let (pipe, n) = pipe_with(buf);
    splice_out(pipe, fd, n)
}

/// The second pipe's copy goes to the socket.
fn tee(fd: Fd, buf: &[u8]) -> Outcome {
    let (first, n) = pipe_with(buf);
    let second = fds::pipe(libc::O_CLOEXEC);
    let copied = io::tee(first.0, second.1, n, 0)?;
    fds::close(first.0)?;
    fds::close(first.1)?;
    splice_out(second, fd, copied)
}

/// The socket uses the pages until the peer has read them, so they are never freed.
fn vmsplice(fd: Fd, buf: &[u8]) -> Outcome {
    let pages: &'static [u8] = Vec::leak(buf[..buf.len().min(PIPE_ROOM)].to_vec());
    let pipe = fds::pipe(libc::O_CLOEXEC);
    let n = io::vmsplice(pipe.1, pages)?;
    splice_out(pipe, fd, n)
}

/// One character a call: a byte of any value, zero too.
fn dprintf(fd: Fd, buf: &[u8]) -> Outcome {
    // SAFETY: the format takes one character, which follows.
    crate::sys::errno::outcome(unsafe { crate::sys::glibc::dprintf(fd, c"%c".as_ptr(), i32::from(buf[0])) })
}

fn fwrite(fd: Fd, buf: &[u8]) -> Outcome {
    let copy = fds::dup(fd)? as Fd;
    let mut stream = stdio::Stream::open(copy, c"w");
    let done = stream.write(buf);
    stream.close()?;
    Ok(done)
}
