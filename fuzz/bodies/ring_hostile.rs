//! Both ends of a ring while somebody writes any value into any shared word at any time: nothing panics, and no
//! byte outside of the ring is touched.

use super::input::Input as Bytes;
use sidestep_abi::link::{Bell, COPYING, FROZEN, Reader, SLOTS, UNUSED, WORDS, Writer};
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_ring::{Advance, Data, Head, Input, Output, bell};

/// Bytes on either side, as many as the largest ring.
const GUARD: usize = 256;
const PATTERN: u8 = 0xA5;

/// A ring between two guards.
struct Guarded {
    memory: Vec<u8>,
    size: usize,
}

impl Guarded {
    fn new(size: usize) -> Guarded {
        Guarded { memory: vec![PATTERN; size + 2 * GUARD], size }
    }

    fn data(&mut self) -> Data {
        // SAFETY: `size` bytes behind the first guard; the memory outlives every use of the value below.
        unsafe { Data::new(self.memory[GUARD..].as_mut_ptr(), self.size) }
    }

    fn check(&self) {
        let behind = GUARD + self.size;
        assert_eq!(self.memory[..GUARD], [PATTERN; GUARD], "before the ring");
        assert_eq!(self.memory[behind..], [PATTERN; GUARD], "behind the ring");
    }
}

/// A copy between ring and buffer, which never fails.
fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
    // SAFETY: both have so many bytes: of the ring that is what is tried here, the guards would show it.
    unsafe { to.copy_from_nonoverlapping(from, len) };
    true
}

struct Ring {
    writer: Writer,
    reader: Reader,
    bell: Bell,
    output: Output,
    input: Input,
    memory: Guarded,
    /// Position for the next stretch.
    next: u64,
}

impl Ring {
    fn new(size: usize) -> Ring {
        let reader = Reader::default();
        reader.head.store(UNUSED, Relaxed);
        let (writer, bell) = (Writer::default(), Bell::default());
        let (output, input) = (Output::default(), Input::default());
        Ring { writer, reader, bell, output, input, memory: Guarded::new(size), next: 0 }
    }

    fn write(&mut self, want: usize) {
        let space = self.output.space(self.memory.size);
        assert!(space <= self.memory.size);
        let source = [0x5A; 64];
        let n = want.min(space).min(source.len());
        assert!(self.memory.data().put(self.output.at(), source.as_ptr(), n, copy));
        self.output.publish(&self.writer, n);
        let _ = bell::ring(&self.bell, self.output.tail as usize, || ());
    }

    fn read(&mut self, want: usize) {
        let Ok(n) = self.input.available(&self.writer, self.memory.size) else { return };
        assert!(n <= self.memory.size);
        let mut target = [PATTERN; 3 * 64];
        let n = n.min(want).min(64);
        let at = self.input.at(&self.writer);
        assert!(self.memory.data().get(at, target[64..].as_mut_ptr(), n, copy));
        assert_eq!(target[..64], [PATTERN; 64], "before the buffer");
        assert_eq!(target[64 + n..128 + n], [PATTERN; 64], "behind the buffer");
        let before = self.input.pos;
        let result = self.input.advance(&self.reader, n);
        assert_eq!(self.input.pos, if result == Ok(Advance::Done) { before + n as u64 } else { before });
    }

    /// The contract of `enter`: the reader stands where the stretch begins.
    fn enter(&mut self) {
        if let Some(stretch) = self.input.announced(&self.writer) {
            if stretch.from == self.input.pos && stretch.from < FROZEN {
                let _ = self.input.enter(&self.reader, stretch);
            }
            self.input.epoch = stretch.epoch;
        }
    }

    /// The contract of `begin`: the reader has noticed the end of the last stretch, and there is a byte between.
    fn begin(&mut self) {
        self.next = self.next.max(self.output.tail) + 1;
        if self.output.begin(&self.writer, &self.reader, self.next).is_ok() {
            self.input.pos = self.next;
        }
    }

    fn look(&mut self) {
        match self.output.look(&self.reader) {
            Ok(Head::At(_)) => self.output.rebase(&self.writer),
            Ok(Head::Frozen(end)) => self.check_end(end),
            Err(_) => {}
        }
    }

    fn mark(&mut self) {
        if let Ok(Head::At(pos) | Head::Frozen(pos)) = self.output.mark_copying(&self.writer, &self.reader) {
            self.check_end(pos);
        }
    }

    /// What is sent by kernel lies in the ring: the writer's own bytes, no more.
    fn check_end(&self, end: u64) {
        assert!(end >= self.output.from && end <= self.output.tail);
        assert!(self.output.tail - end <= self.memory.size as u64);
    }

    fn take(&mut self) {
        bell::take(&self.bell, |slot| assert!(slot < SLOTS));
    }

    fn lie(&self, bytes: &mut Bytes) {
        let near = [
            0,
            self.output.tail,
            self.output.from,
            self.input.pos,
            self.input.pos | FROZEN,
            self.input.pos | COPYING,
            u64::MAX,
            FROZEN,
        ];
        let value = bytes.hostile(&near);
        match bytes.below(9) {
            0 => self.writer.tail.store(value, Relaxed),
            1 => self.writer.base.store(value, Relaxed),
            2 => self.writer.ring_from.store(value, Relaxed),
            3 => self.writer.epoch.store(value as u32, Relaxed),
            4 => self.writer.wants_space.store(value as u32, Relaxed),
            5 => self.bell.news.store(value, Relaxed),
            6 => self.bell.ready[value as usize % WORDS].store(value, Relaxed),
            7 => self.bell.asleep.store(value as u32, Relaxed),
            _ => self.reader.head.store(value, Relaxed),
        }
    }
}

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut ring = Ring::new(1 << bytes.below(9));
    while !bytes.is_empty() {
        match bytes.below(16) {
            0..=2 => ring.write(bytes.byte() as usize),
            3..=5 => ring.read(bytes.byte() as usize),
            6 | 7 => ring.enter(),
            8 => ring.begin(),
            9 => ring.look(),
            10 => ring.mark(),
            11 => ring.input.freeze(&ring.reader),
            12 => ring.take(),
            _ => ring.lie(&mut bytes),
        }
        ring.memory.check();
    }
}
