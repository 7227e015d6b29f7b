//! Data of the library's own registrations in the kernel's sets, which tells their events from the program's. The upper half is
//! a random number, which no other process can know. The lower half is the descriptor, or marks a doorbell or a wake-up.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use sidestep_sys::{arch, process};

const HALF: u32 = 32;
const BELL: u32 = u32::MAX;
const WAKE: u32 = u32::MAX - 1;

/// 0: not chosen yet. Forked children keep the number, since the sets that they inherit hold registrations with it.
static UPPER: AtomicU64 = AtomicU64::new(0);

fn upper() -> u64 {
    match UPPER.load(Relaxed) {
        0 => choose(),
        known => known,
    }
}

/// Called before the first set is made, so that forked children which share the set have the same tags.
pub fn prepare() {
    upper();
}

#[cold]
fn choose() -> u64 {
    // Early after boot the kernel has no random numbers yet, so the clock is used.
    let random = process::random().unwrap_or_else(|_| arch::ticks().wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let chosen = (random >> HALF).max(1) << HALF;
    UPPER.compare_exchange(0, chosen, Relaxed, Relaxed).map_or_else(|faster| faster, |_| chosen)
}

/// Tag of a managed registration.
pub fn of(fd: i32) -> u64 {
    upper() | u64::from(fd as u32)
}

pub fn of_doorbell() -> u64 {
    upper() | u64::from(BELL)
}

/// Tag of what wakes a relative that waits in the same set.
pub fn of_wake() -> u64 {
    upper() | u64::from(WAKE)
}

/// The source of a kernel event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Program,
    Doorbell,
    Wake,
    Managed(i32),
}

pub fn source(data: u64) -> Source {
    if data >> HALF != upper() >> HALF {
        return Source::Program;
    }
    match data as u32 {
        BELL => Source::Doorbell,
        WAKE => Source::Wake,
        fd => Source::Managed(fd as i32),
    }
}

pub fn is_ours(data: u64) -> bool {
    source(data) != Source::Program
}
