//! select and pselect, with sets of any size (the kernel takes more than FD_SETSIZE bits).

#![allow(missing_docs)] // A function with the name of a call makes this call.

use libc::{c_int, fd_set, sigset_t, timeval};

use super::errno::{Outcome, outcome};
use super::poll::timespec_ms;
use super::{Fd, glibc};

const WORDS: usize = 64; // 4096 descriptors

/// A set of descriptors as select's bitmap.
#[derive(Clone, Default)]
pub struct Bits(Option<Box<[u64; WORDS]>>);

impl Bits {
    pub fn of(fds: &[Fd]) -> Bits {
        let mut words = Box::new([0u64; WORDS]);
        for &fd in fds {
            words[fd as usize / 64] |= 1 << (fd % 64);
        }
        Bits(Some(words))
    }

    pub fn has(&self, fd: Fd) -> bool {
        self.0.as_ref().is_some_and(|w| w[fd as usize / 64] & (1 << (fd % 64)) != 0)
    }

    fn pointer(&mut self) -> *mut fd_set {
        self.0.as_mut().map_or(std::ptr::null_mut(), |w| w.as_mut_ptr().cast())
    }
}

/// The three sets; `Bits::default()` passes a null pointer.
#[derive(Clone, Default)]
pub struct Sets {
    pub read: Bits,
    pub write: Bits,
    pub except: Bits,
}

fn time(ms: i64) -> timeval {
    timeval { tv_sec: ms / 1000, tv_usec: ms % 1000 * 1000 }
}

/// Returns the count and the time that was left, which Linux writes back.
pub fn select(limit: c_int, sets: &mut Sets, ms: i64) -> (Outcome, i64) {
    let mut left = time(ms);
    let (r, w, e) = (sets.read.pointer(), sets.write.pointer(), sets.except.pointer());
    // SAFETY: each set is null or has room for `limit` bits; the time is a live value.
    let ret = outcome(unsafe { libc::select(limit, r, w, e, &mut left) });
    (ret, left.tv_sec * 1000 + left.tv_usec / 1000)
}

pub fn under_select(limit: c_int, sets: &mut Sets, ms: i64) -> Outcome {
    let mut left = time(ms);
    let (r, w, e) = (sets.read.pointer(), sets.write.pointer(), sets.except.pointer());
    // SAFETY: each set is null or has room for `limit` bits; the time is a live value.
    outcome(unsafe { glibc::__select(limit, r.cast(), w.cast(), e.cast(), &mut left) })
}

pub fn pselect(limit: c_int, sets: &mut Sets, ms: i64, mask: Option<&sigset_t>) -> Outcome {
    let time = timespec_ms(ms);
    let mask = mask.map_or(std::ptr::null(), |m| m as *const sigset_t);
    let (r, w, e) = (sets.read.pointer(), sets.write.pointer(), sets.except.pointer());
    // SAFETY: each set is null or has room for `limit` bits; time and mask live, null is allowed.
    outcome(unsafe { libc::pselect(limit, r, w, e, &time, mask) })
}
