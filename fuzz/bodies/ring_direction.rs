//! One direction with its ring, for tests that play both of its ends, in one thread or in several.
#![allow(dead_code)] // each test uses its part

use super::memory::Memory;
use sidestep_abi::link::{Reader, Side, Writer};
use sidestep_ring::{Advance, Half, Head, Input, Output, PeerViolation, slot};

/// The shared memory of one direction.
pub struct Direction {
    pub writer: Writer,
    pub reader: Reader,
    pub reading_side: Side,
    pub writing_side: Side,
    pub memory: Memory,
}

impl Direction {
    /// A direction that has never had a stretch.
    pub fn new(size: usize) -> Direction {
        let reader = Reader::default();
        slot::reset_reader(&reader);
        Direction {
            writer: Writer::default(),
            reader,
            reading_side: Side::default(),
            writing_side: Side::default(),
            memory: Memory::new(size),
        }
    }

    pub fn half(&self) -> Half<'_> {
        Half {
            writer: &self.writer,
            reader: &self.reader,
            reading_side: &self.reading_side,
            writing_side: &self.writing_side,
            size: self.memory.size(),
        }
    }

    /// The writing end of a stretch that has begun at `from`.
    pub fn begun(&self, from: u64) -> Output {
        let mut output = Output::default();
        output.begin(&self.writer, &self.reader, from).expect("a fresh direction");
        output
    }

    /// Both ends of a stretch that has begun at `from` and that the reader has entered.
    pub fn entered(&self, from: u64) -> (Output, Input) {
        let output = self.begun(from);
        let mut input = Input::at_position(from);
        let stretch = input.announced(&self.writer).expect("it has begun");
        assert_eq!(input.enter(&self.reader, stretch), Ok(true));
        (output, input)
    }

    /// Writes and publishes the bytes of `bytes` that fit. How many.
    pub fn write(&self, output: &mut Output, bytes: &[u8]) -> usize {
        let space = output.space(self.memory.size());
        assert!(space <= self.memory.size());
        let n = bytes.len().min(space);
        self.memory.put(output.at(), &bytes[..n]);
        output.publish(&self.writer, n);
        n
    }

    /// Reads up to `max` bytes, which are the reader's if the stretch had not ended before them.
    pub fn read(&self, input: &mut Input, max: usize) -> Result<(Vec<u8>, Advance), PeerViolation> {
        let n = input.available(&self.writer, self.memory.size())?;
        assert!(n <= self.memory.size());
        let got = self.memory.get(input.at(&self.writer), n.min(max));
        let before = input.pos;
        let result = input.advance(&self.reader, got.len());
        let is_done = result == Ok(Advance::Done);
        assert_eq!(input.pos, if is_done { before.wrapping_add(got.len() as u64) } else { before });
        result.map(|advance| (got, advance))
    }

    /// The writer looks at the reader's word, and moves the base of an empty ring.
    pub fn look(&self, output: &mut Output) -> Result<Head, PeerViolation> {
        let head = output.poll(&self.reader)?;
        if let Head::At(_) = head {
            output.rebase(&self.writer);
        }
        Ok(head)
    }

    /// The bytes that the writer sends by kernel: those from `from` on.
    pub fn unread(&self, output: &Output, from: u64) -> Vec<u8> {
        assert!(from >= output.from && from <= output.tail);
        let len = output.tail - from;
        assert!(len <= self.memory.size() as u64);
        self.memory.get(from.wrapping_sub(output.base), len as usize)
    }
}
