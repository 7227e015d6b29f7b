//! How much of its time this thread sleeps, judged by its waits in epoll sets, and how close together its operations are.

use crate::thread;
use core::sync::atomic::Ordering::Relaxed;
use sidestep_conn::Rest;
use sidestep_sys::{arch, clock};

/// Length of the past that counts.
const WINDOW_US: u64 = 10_000;

/// Runs a wait that may sleep, and records how long it slept.
#[inline]
pub fn during<T>(wait: impl FnOnce() -> T) -> T {
    let began = arch::ticks();
    let result = wait();
    let (rests, woke) = (&thread::parts().rests, arch::ticks());
    let awake = began.saturating_sub(rests.woke.load(Relaxed));
    let window = clock::ticks_of_us(WINDOW_US).min(u64::from(u32::MAX)) as u32;
    let known = Rest::from_bits(rests.known.load(Relaxed)).after(awake, woke.saturating_sub(began), window);
    rests.known.store(known.bits(), Relaxed);
    rests.woke.store(woke, Relaxed);
    result
}

/// Whether the thread is awake for most of the time.
pub fn is_busy() -> bool {
    Rest::from_bits(thread::parts().rests.known.load(Relaxed)).is_busy()
}

/// The thread acts on a connection of the kernel at `now`. Returns the ticks since it last did; the first time, as many as there are.
pub fn note_op(now: u64) -> u64 {
    let last = thread::parts().rests.last_op.swap(now, Relaxed);
    if last == 0 { u64::MAX } else { now.saturating_sub(last) }
}
