//! Both ends of a ring while somebody writes any value into any shared word at any time: nothing panics, and no copy touches
//! a byte outside of the ring.

use super::input::Input as Bytes;
use super::ring_direction::Direction;
use sidestep_abi::link::{COPYING, Doorbell, FROZEN, SLOTS, WORDS};
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_ring::{Head, Input, Output, doorbell};

struct Ring {
    direction: Direction,
    doorbell: Doorbell,
    output: Output,
    input: Input,
    /// Position for the next stretch.
    next: u64,
}

impl Ring {
    fn new(size: usize) -> Ring {
        Ring {
            direction: Direction::new(size),
            doorbell: Doorbell::default(),
            output: Output::default(),
            input: Input::default(),
            next: 0,
        }
    }

    fn write(&mut self, want: usize) {
        self.direction.write(&mut self.output, &[0x5A; 64][..want.min(64)]);
        let _ = doorbell::ring(&self.doorbell, self.output.tail as usize, || ());
    }

    /// The contract of `enter`: the reader stands where the stretch begins.
    fn enter(&mut self) {
        if let Some(stretch) = self.input.announced(&self.direction.writer) {
            if stretch.from == self.input.pos && stretch.from < FROZEN {
                let _ = self.input.enter(&self.direction.reader, stretch);
            }
            self.input.epoch = stretch.epoch;
        }
    }

    /// The contract of `begin`: the reader has noticed the end of the last stretch, and there is a byte between.
    fn begin(&mut self) {
        self.next = self.next.max(self.output.tail) + 1;
        if self.output.begin(&self.direction.writer, &self.direction.reader, self.next).is_ok() {
            self.input.pos = self.next;
        }
    }

    fn look(&mut self) {
        if let Ok(Head::Frozen(end)) = self.direction.look(&mut self.output) {
            self.direction.unread(&self.output, end);
        }
    }

    fn mark(&mut self) {
        let marked = self.output.mark_copying(&self.direction.writer, &self.direction.reader);
        if let Ok(Head::At(pos) | Head::Frozen(pos)) = marked {
            self.direction.unread(&self.output, pos);
        }
    }

    fn poll(&self) {
        doorbell::poll(&self.doorbell, |slot| assert!(slot < SLOTS));
    }

    fn violate(&self, bytes: &mut Bytes) {
        let pos = self.input.pos;
        let near = [0, self.output.tail, self.output.from, pos, pos | FROZEN, pos | COPYING, u64::MAX, FROZEN];
        let value = bytes.hostile(&near);
        let (writer, doorbell) = (&self.direction.writer, &self.doorbell);
        match bytes.below(9) {
            0 => writer.tail.store(value, Relaxed),
            1 => writer.base.store(value, Relaxed),
            2 => writer.ring_from.store(value, Relaxed),
            3 => writer.epoch.store(value as u32, Relaxed),
            4 => writer.wants_space.store(value as u32, Relaxed),
            5 => doorbell.news.store(value, Relaxed),
            6 => doorbell.ready[value as usize % WORDS].store(value, Relaxed),
            7 => doorbell.armed.store(value as u32, Relaxed),
            _ => self.direction.reader.head.store(value, Relaxed),
        }
    }
}

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut ring = Ring::new(1 << bytes.below(9));
    while !bytes.is_empty() {
        match bytes.below(16) {
            0..=2 => ring.write(bytes.byte() as usize),
            3..=5 => drop(ring.direction.read(&mut ring.input, bytes.byte() as usize)),
            6 | 7 => ring.enter(),
            8 => ring.begin(),
            9 => ring.look(),
            10 => ring.mark(),
            11 => ring.input.freeze(&ring.direction.reader, |_| true),
            12 => ring.poll(),
            _ => ring.violate(&mut bytes),
        }
    }
}
