//! Sends what signal handlers have written while their thread held the connection's lock ([`late`]).

use super::source::Buffers;
use super::{iov, late, stretch, tx};
use crate::record::{Conn, Reentered};
use crate::{arena, errno};

/// As [`stretch::attend`], and sends what is kept for the connection.
#[inline]
pub fn attend(c: &Conn, fd: i32) {
    stretch::attend(c, fd);
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
        late::flush(index, |bytes| {
            let one = iov::one(bytes.as_ptr().cast(), bytes.len());
            match tx::step(c, end, fd, &mut Buffers(&one), 0, libc::MSG_NOSIGNAL) {
                Ok(n) => n,
                Err(e) if e.passes() => 0,
                Err(_) => bytes.len(), // the connection takes no bytes any more, which the program's next write will hear
            }
        });
    })
}
