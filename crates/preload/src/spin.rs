//! Spinning before sleeping: only while it pays ([`sidestep_conn::Spin`]), and only while a processor is idle.

use crate::settings::{self, Spin as Setting};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use sidestep_conn::Spin as Learnt;
use sidestep_sys::{arch, clock, process};

/// How often a spinning thread yields its processor: the peer that it waits for may need the processor.
const YIELD_US: u64 = 3;
/// If this much time passes between two looks, another thread has used the processor.
const STOLEN_US: u64 = 15;

/// What a set or connection has learnt about its waits; zero: nothing. Concurrent waits of several threads may overwrite each
/// other's values.
#[derive(Default)]
pub struct Spin {
    learnt: AtomicU32,
}

impl Spin {
    pub const fn new() -> Spin {
        Spin { learnt: AtomicU32::new(0) }
    }

    fn learnt(&self) -> Learnt {
        Learnt::from_bits(self.learnt.load(Relaxed))
    }

    /// Whether [`Spin::wait`] may spin at all.
    #[inline]
    pub fn may_pay(&self) -> bool {
        match settings::get().spin {
            Setting::Off => false,
            Setting::Micros(_) => true,
            Setting::Auto => self.learnt().budget().is_some(),
        }
    }

    /// Spins for a while. True: `ready` held. False: the caller sleeps, and then calls [`Spin::waited`].
    #[inline]
    pub fn wait(&self, ready: impl FnMut() -> bool) -> bool {
        let budget = match settings::get().spin {
            Setting::Off => None,
            Setting::Micros(us) => Some(us),
            Setting::Auto => self.learnt().budget().filter(|_| has_spare_processor()),
        };
        let us = budget.and_then(|us| turn(us, ready));
        us.inspect(|us| self.learn(*us)).is_some()
    }

    /// A wait that ended with a sleep has taken this many ticks, including the spin.
    #[inline]
    pub fn waited(&self, ticks: u64) {
        self.learn((ticks / clock::ticks_of_us(1)).min(u64::from(u32::MAX)) as u32);
    }

    fn learn(&self, us: u32) {
        self.learnt.store(self.learnt().after(us).bits(), Relaxed);
    }
}

/// Spins for at most `us` microseconds. Some: `ready` held after that many microseconds.
fn turn(us: u32, mut ready: impl FnMut() -> bool) -> Option<u32> {
    let start = arch::ticks();
    let end = start + clock::ticks_of_us(u64::from(us));
    let stolen = clock::ticks_of_us(STOLEN_US);
    let mut aside = start + clock::ticks_of_us(YIELD_US);
    let mut last = start;
    loop {
        if ready() {
            return Some(((last - start) / clock::ticks_of_us(1)) as u32 + 1);
        }
        let now = arch::ticks();
        if now >= end || now - last > stolen {
            return None;
        }
        last = now;
        if now >= aside {
            process::step_aside();
            aside = now + clock::ticks_of_us(YIELD_US);
        }
        arch::pause();
    }
}

/// How long an answer of /proc/loadavg counts, whether or not a processor was idle. Asking takes three system calls, which a
/// busy machine has no time for.
const SPARE_US: u64 = 4000;
const BUSY_US: u64 = 16_000;

/// Whether fewer threads are runnable on this machine than it has processors.
fn has_spare_processor() -> bool {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static SPARE: AtomicU32 = AtomicU32::new(0);
    static CPUS: AtomicU32 = AtomicU32::new(0);
    let now = arch::ticks();
    if now >= NEXT.load(Relaxed) {
        NEXT.store(now + clock::ticks_of_us(SPARE_US), Relaxed); // keeps other threads from asking meanwhile
        if CPUS.load(Relaxed) == 0 {
            CPUS.store(process::processors(), Relaxed);
        }
        let spare = process::runnable().is_some_and(|n| n <= CPUS.load(Relaxed));
        SPARE.store(u32::from(spare), Relaxed);
        if !spare {
            NEXT.store(now + clock::ticks_of_us(BUSY_US), Relaxed);
        }
    }
    SPARE.load(Relaxed) != 0
}
