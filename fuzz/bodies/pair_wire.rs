//! One connection as its two ends share it: the slot, two rings, and a plain model of the kernel's TCP. The value of each byte
//! follows from its position.
#![allow(dead_code)] // each test uses its part

use super::engine::Mutex;
use super::memory::Memory;
use super::pair_kernel::Kernel;
use sidestep_abi::link::Slot;
use sidestep_conn::{Event, Half, phase};
use sidestep_ring::{side, slot};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub struct Wire {
    slot: Slot,
    /// Of the direction that side 0, or 1, writes.
    rings: [Memory; 2],
    kernel: Mutex<Kernel>,
    /// What each end knows of its own life, in all its threads.
    pub phases: [phase::Cell; 2],
    /// The clock of both.
    now: AtomicU64,
}

impl Wire {
    /// A connection whose two ends have just been attached. `ring`: bytes of a ring.
    pub fn new(ring: usize, kernel: Kernel) -> Wire {
        let slot = Slot::default();
        slot::reset(&slot);
        let wire = Wire {
            slot,
            rings: [Memory::new(ring), Memory::new(ring)],
            kernel: Mutex::new(kernel),
            phases: [phase::Cell::default(), phase::Cell::default()],
            now: AtomicU64::new(0),
        };
        for side in 0..2 {
            let life = [Event::Open, Event::Offer { passive: false }, Event::Assign, Event::Enter, Event::Ready];
            life.into_iter().for_each(|event| assert!(wire.phases[side].go(event).is_some(), "{event:?}"));
            wire.half(1 - side).set_ready();
        }
        wire
    }

    /// One system call.
    pub fn call<T>(&self, call: impl FnOnce(&mut Kernel) -> T) -> T {
        call(&mut self.kernel.lock().unwrap())
    }

    /// The direction that `side` writes.
    pub fn half(&self, side: usize) -> Half<'_> {
        Half::of(&self.slot, side, self.rings[side].size())
    }

    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    pub fn pass(&self, time: u64) {
        self.now.fetch_add(time, Relaxed);
    }

    /// Copies the bytes of these positions into the ring that `side` writes.
    pub fn put(&self, side: usize, at: u64, from: u64, n: usize) {
        let bytes: Vec<u8> = (0..n as u64).map(|i| byte(from + i)).collect();
        self.rings[side].put(at, &bytes);
    }

    pub fn get(&self, side: usize, at: u64, n: usize) -> Vec<u8> {
        self.rings[side].get(at, n)
    }

    /// What the broker does when it has noticed that `side` is gone.
    pub fn bury(&self, side: usize) {
        self.half(1 - side).freeze();
        self.half(1 - side).has_sent();
    }

    /// The operator holds the connection on the kernel, or lets it go.
    pub fn hold(&self, is_held: bool) {
        slot::set_hold(&self.slot, is_held);
        self.hint_both();
    }

    /// `side` may wait where it hears no doorbell, or does not any more.
    pub fn set_away(&self, side: usize, is_away: bool) {
        if is_away {
            side::set_away(&self.slot.side[side]);
        } else {
            side::clear_away(&self.slot.side[side]);
        }
        self.hint_both();
    }

    fn hint_both(&self) {
        (0..2).for_each(|side| self.half(side).hint_freeze());
    }
}

/// The byte at a position: neighbours differ.
pub fn byte(pos: u64) -> u8 {
    (pos.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}
