//! Writes of a signal handler that has interrupted a write to the same connection.
//!
//! The interrupted write, or the wait that was looking at the connection, holds the lock, and waiting for it would be a deadlock. So
//! the handler's bytes are kept here. They are sent after the present step of the interrupted write, or at the next look or write
//! (`kept.rs`), as if the handler had run a moment later.

use crate::critical::Lock;
use crate::user;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::*};
use libc::iovec;
use sidestep_sys::lock::Taken;
use sidestep_sys::{Errno, Result};

/// Room for the bytes. Handlers write little; more is refused with EAGAIN.
const ROOM: usize = 4096;

struct Kept(UnsafeCell<[u8; ROOM]>);

// SAFETY: touched only under LOCK.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(UnsafeCell::new([0; ROOM]));
static LOCK: Lock = Lock::new();

/// In a forked child: the parent sends what is kept.
pub fn reset_in_child() {
    LOCK.reset_in_child();
    LEN.store(0, Relaxed);
    OWNER.store(0, Release);
}
/// Number of kept bytes. All are for one connection, index + 1 in OWNER.
static LEN: AtomicU32 = AtomicU32::new(0);
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The connection for which bytes are kept.
#[inline]
pub fn owner() -> Option<u32> {
    OWNER.load(Relaxed).checked_sub(1)
}

/// Whether bytes are kept for this connection.
#[inline]
pub fn has_some(index: u32) -> bool {
    OWNER.load(Relaxed) == index + 1
}

/// Keeps all bytes, or none: EAGAIN.
pub fn keep(index: u32, iov: &[iovec]) -> Result<usize> {
    let n = super::iov::total(iov);
    if LOCK.lock(crate::thread::tid()) == Taken::Reentered {
        return Err(Errno(libc::EAGAIN));
    }
    let (owner, len) = (OWNER.load(Relaxed), LEN.load(Relaxed) as usize);
    let fits = (owner == 0 || owner == index + 1) && n <= ROOM - len;
    let kept = if fits {
        super::iov::pieces(iov, 0, n, |from, part, done| {
            // SAFETY: under the lock; len + n <= ROOM.
            unsafe { user::copy(KEPT.0.get().cast::<u8>().add(len + done), from, part) }
        })
    } else {
        Err(Errno(libc::EAGAIN))
    };
    if kept.is_ok() {
        LEN.store((len + n) as u32, Relaxed);
        OWNER.store(index + 1, Release);
    }
    LOCK.unlock();
    kept.map(|()| n)
}

/// The record is about to be another connection's: what is kept for the last one, which ended before it was sent, must not go to
/// that connection's peer.
pub fn forget(index: u32) {
    if !has_some(index) || LOCK.lock(crate::thread::tid()) == Taken::Reentered {
        return;
    }
    if has_some(index) {
        LEN.store(0, Relaxed);
        OWNER.store(0, Release);
    }
    LOCK.unlock();
}

/// Sends the bytes that are kept for this connection with `send`, which returns how many bytes it has sent. The caller holds the
/// connection's lock, which [`keep`] holds, too: the handler's thread does.
pub fn flush(index: u32, mut send: impl FnMut(&[u8]) -> usize) {
    if LOCK.lock(crate::thread::tid()) == Taken::Reentered {
        return;
    }
    if has_some(index) {
        send_kept(&mut send);
    }
    LOCK.unlock();
}

/// Under the lock.
fn send_kept(send: &mut impl FnMut(&[u8]) -> usize) {
    let len = LEN.load(Relaxed) as usize;
    // SAFETY: under the lock.
    let bytes = unsafe { &mut *KEPT.0.get() };
    let sent = send(&bytes[..len]).min(len);
    bytes.copy_within(sent..len, 0);
    LEN.store((len - sent) as u32, Relaxed);
    if sent == len {
        OWNER.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::iov;
    use std::vec::Vec;

    #[test]
    fn what_handlers_write_goes_in_order_and_whole() {
        let write = |index, bytes: &[u8]| keep(index, &iov::one(bytes.as_ptr().cast(), bytes.len()));
        assert_eq!(write(3, b"abc"), Ok(3));
        assert_eq!(write(3, b"def"), Ok(3));
        assert!(has_some(3) && !has_some(4));
        assert_eq!(write(4, b"x"), Err(Errno(libc::EAGAIN)), "one connection at a time");
        assert_eq!(write(3, &[0; ROOM]), Err(Errno(libc::EAGAIN)), "all of it, or nothing");
        let mut sent = Vec::new();
        flush(3, |bytes| {
            sent.extend_from_slice(&bytes[..2]);
            2
        });
        assert!(has_some(3));
        flush(3, |bytes| {
            sent.extend_from_slice(bytes);
            bytes.len()
        });
        assert_eq!(sent, b"abcdef");
        assert!(!has_some(3));
        // The connection ends before its bytes are sent, and another one gets its record.
        assert_eq!(write(3, b"old"), Ok(3));
        forget(4);
        assert!(has_some(3), "of another connection");
        forget(3);
        assert!(!has_some(3));
        assert_eq!(write(4, b"new"), Ok(3));
        sent.clear();
        flush(3, |_| panic!("of another connection"));
        flush(4, |bytes| {
            sent.extend_from_slice(bytes);
            bytes.len()
        });
        assert_eq!((sent.as_slice(), owner()), (&b"new"[..], None));
        // The parent sends it, so its child must not.
        assert_eq!(write(3, b"parent"), Ok(6));
        reset_in_child();
        assert_eq!(owner(), None);
        assert_eq!(write(4, b"child"), Ok(5));
        flush(4, |bytes| {
            assert_eq!(bytes, b"child");
            bytes.len()
        });
    }
}
