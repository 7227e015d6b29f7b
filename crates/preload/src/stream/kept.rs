//! Sends what signal handlers have written while their thread held the connection's lock ([`late`]).

use super::source::Buffers;
use super::{iov, late, stretch, tx};
use crate::record::{Conn, Reentered};
use crate::{arena, errno};
use sidestep_conn::Writer;

/// As [`stretch::attend`], and sends what is kept for the connection.
#[inline]
pub fn attend(c: &Conn, fd: i32) {
    stretch::attend(c, fd);
    send_any(c, fd);
}

/// Sends what is kept for the connection, if anything, as many bytes as go now.
#[inline]
pub fn send_any(c: &Conn, fd: i32) {
    if let Some(index) = late::owner() {
        errno::keep(|| send_own(index, c, fd));
    }
}

#[cold]
fn send_own(index: u32, c: &Conn, fd: i32) {
    if core::ptr::eq(arena::conn(index), c) {
        let _ = send(index, c, fd);
    }
}

/// Sends the bytes that are kept for the connection, as many as go now. Err: this handler has interrupted a holder of the lock.
#[cold]
pub fn send(index: u32, c: &Conn, fd: i32) -> Result<(), Reentered> {
    c.with_tx(|end| {
        all_go(index, c, end, fd);
    })
}

/// As [`send`], under the connection's lock. Whether nothing is kept any more.
#[cold]
pub fn all_go(index: u32, c: &Conn, end: &mut Writer, fd: i32) -> bool {
    late::flush(index, |bytes| {
        let (one, mut sent) = (iov::one(bytes.as_ptr().cast(), bytes.len()), 0);
        match tx::steps(c, end, fd, &mut Buffers(&one), &mut sent, libc::MSG_NOSIGNAL) {
            Err(e) if !e.passes() => bytes.len(), // no bytes any more, which the program's next write will hear
            _ => sent,
        }
    });
    !late::has_some(index)
}
