//! Epoll sets that the program has made by system call instructions. A blocking socket may be in one of them, where a ring would wake
//! nobody.

use crate::fdtable::{self, Kind};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use sidestep_sys::{arch, clock, descriptors};

/// How long an answer counts: a process with a thousand descriptors takes half a millisecond for it.
const COUNTS_US: u64 = 100_000;

static ASKED_UNTIL: AtomicU64 = AtomicU64::new(0);
static HAS_ONE: AtomicBool = AtomicBool::new(false);

/// Whether this process has an epoll set that the library does not know, according to a recent look. No, if the kernel does not tell.
pub fn has_set() -> bool {
    let now = arch::ticks();
    if now >= ASKED_UNTIL.load(Relaxed) {
        let is_unknown = |fd| fdtable::get(fd) == Kind::Other;
        HAS_ONE.store(descriptors::have_epoll_set(is_unknown).unwrap_or(false), Relaxed);
        ASKED_UNTIL.store(now + clock::ticks_of_us(COUNTS_US), Relaxed);
    }
    HAS_ONE.load(Relaxed)
}
