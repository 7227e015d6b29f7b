//! One connection as its two ends share it: the slot, two rings, and a plain model of the kernel's TCP: for each direction a
//! queue of bytes, which may be full, end, or lose its reader. The value of each byte follows from its position.
#![allow(dead_code)] // each test uses its part

use super::engine::Mutex;
use super::memory::Memory;
use sidestep_abi::link::Slot;
use sidestep_conn::{Event, Half, phase};
use sidestep_ring::{side, slot};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// All that it ever took.
    taken: u64,
    /// Nothing follows.
    has_ended: bool,
    /// Nobody reads it any more.
    is_broken: bool,
}

/// What became of bytes that were given to the kernel.
pub enum Sent {
    Some(usize),
    Full,
    /// The other end is gone.
    Gone,
}

pub struct Wire {
    slot: Slot,
    /// Of the direction that side 0, or 1, writes.
    rings: [Memory; 2],
    queues: [Mutex<Queue>; 2],
    /// Bytes that a queue holds at most.
    room: usize,
    /// What each end knows of its own life, in all its threads.
    pub phases: [phase::Cell; 2],
    /// The clock of both.
    now: AtomicU64,
}

impl Wire {
    /// A connection whose two ends have just been attached.
    pub fn new(ring: usize, room: usize) -> Wire {
        let slot = Slot::default();
        slot::reset(&slot);
        let wire = Wire {
            slot,
            rings: [Memory::new(ring), Memory::new(ring)],
            queues: [Mutex::new(Queue::default()), Mutex::new(Queue::default())],
            room,
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

    /// Gives the kernel what it takes of `bytes`.
    pub fn send(&self, side: usize, bytes: &[u8]) -> Sent {
        let mut queue = self.queues[side].lock().unwrap();
        assert!(!queue.has_ended, "bytes after the end");
        let n = bytes.len().min(self.room - queue.bytes.len());
        match n {
            _ if queue.is_broken => Sent::Gone,
            0 => Sent::Full,
            n => {
                queue.bytes.extend(&bytes[..n]);
                queue.taken += n as u64;
                Sent::Some(n)
            }
        }
    }

    /// Takes up to `max` bytes that `side` has sent by kernel.
    pub fn take(&self, side: usize, max: usize) -> Vec<u8> {
        let mut queue = self.queues[side].lock().unwrap();
        let n = max.min(queue.bytes.len());
        queue.bytes.drain(..n).collect()
    }

    pub fn queued(&self, side: usize) -> usize {
        self.queues[side].lock().unwrap().bytes.len()
    }

    /// Bytes that the kernel has had from `side`.
    pub fn taken(&self, side: usize) -> u64 {
        self.queues[side].lock().unwrap().taken
    }

    /// The kernel's word that nothing follows what it has of `side`'s bytes.
    pub fn has_ended(&self, side: usize) -> bool {
        self.queues[side].lock().unwrap().has_ended
    }

    /// Whether the kernel would refuse what `side` sends.
    pub fn is_broken(&self, side: usize) -> bool {
        self.queues[side].lock().unwrap().is_broken
    }

    /// shutdown(SHUT_WR) of `side`.
    pub fn finish(&self, side: usize) {
        self.queues[side].lock().unwrap().has_ended = true;
    }

    /// The process of `side` is gone, without a word to the library of the other.
    pub fn die(&self, side: usize) {
        self.finish(side);
        let mut read = self.queues[1 - side].lock().unwrap();
        read.is_broken = true;
        read.bytes.clear();
    }

    /// What the broker does when it has noticed that `side` is gone.
    pub fn bury(&self, side: usize) {
        self.half(1 - side).freeze();
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
