//! The ring as a queue of bytes: any sizes, any pieces, wrap-around and return to the base.
#![cfg(not(loom))]

use proptest::prelude::*;
use sidestep_abi::link::{COPYING, FROZEN, Reader, UNUSED, Writer};
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_ring::{Advance, Data, Head, Input, Lie, Output};
use std::collections::VecDeque;

/// A copy between a ring and a buffer of a test, which never fails.
fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
    // SAFETY: tests ask for as many bytes as both have.
    unsafe { to.copy_from_nonoverlapping(from, len) };
    true
}

/// A direction with its ring, in a stretch that begins at `from` and that the reader has entered.
struct Ring {
    writer: Writer,
    reader: Reader,
    output: Output,
    input: Input,
    memory: Vec<u8>,
}

impl Ring {
    fn begun(size: usize, from: u64) -> Ring {
        let (writer, reader) = (Writer::default(), Reader::default());
        reader.head.store(UNUSED, Relaxed);
        let mut output = Output::default();
        output.begin(&writer, &reader, from).expect("a fresh direction");
        Ring { writer, reader, output, input: Input::at_position(from), memory: vec![0; size] }
    }

    fn entered(size: usize, from: u64) -> Ring {
        let mut ring = Ring::begun(size, from);
        let stretch = ring.input.announced(&ring.writer).expect("it has begun");
        assert_eq!(ring.input.enter(&ring.reader, stretch), Ok(true));
        ring
    }

    fn data(&mut self) -> Data {
        // SAFETY: the memory outlives every use of the value below, and is never resized.
        unsafe { Data::new(self.memory.as_mut_ptr(), self.memory.len()) }
    }

    /// Writes what fits of `bytes`; how many.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.output.space(self.memory.len()));
        assert!(self.data().put(self.output.at(), bytes.as_ptr(), n, copy));
        self.output.publish(&self.writer, n);
        n
    }

    /// Reads up to `max` bytes.
    fn read(&mut self, max: usize) -> Vec<u8> {
        let n = self.input.available(&self.writer, self.memory.len()).expect("an honest writer").min(max);
        let mut got = vec![0; n];
        let at = self.input.at(&self.writer);
        assert!(self.data().get(at, got.as_mut_ptr(), n, copy));
        assert_eq!(self.input.advance(&self.reader, n), Ok(Advance::Done));
        got
    }

    fn look(&mut self) {
        assert!(matches!(self.output.look(&self.reader), Ok(Head::At(_))));
        self.output.rebase(&self.writer);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write(usize),
    Read(usize),
    Look,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![(0usize..100).prop_map(Op::Write), (0usize..100).prop_map(Op::Read), Just(Op::Look),];
    prop::collection::vec(op, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_queue_of_bytes(shift in 0u32..8, from in prop_oneof![Just(0), 0u64..1 << 62], ops in ops()) {
        let mut ring = Ring::entered(1 << shift, from);
        let mut model = VecDeque::new();
        let mut next = 0u8;
        for op in ops {
            match op {
                Op::Write(n) => {
                    let bytes: Vec<u8> = (0..n).map(|i| next.wrapping_add(i as u8)).collect();
                    let n = ring.write(&bytes);
                    model.extend(&bytes[..n]);
                    next = next.wrapping_add(n as u8);
                }
                Op::Read(n) => {
                    let want: Vec<u8> = model.drain(..n.min(model.len())).collect();
                    prop_assert_eq!(ring.read(n), want);
                }
                Op::Look => {
                    ring.look();
                    prop_assert_eq!(ring.output.space(1 << shift), (1 << shift) - model.len(), "after a look");
                    prop_assert_eq!(ring.output.unread(), model.len() as u64);
                }
            }
        }
        prop_assert_eq!(ring.output.tail, ring.input.pos + model.len() as u64);
    }

    /// Wherever the base of a hostile peer puts them, bytes come back as they were put, and lie within the ring.
    #[test]
    fn bytes_wrap(shift in 0u32..10, at in any::<u64>(), len in 0usize..1024) {
        let size = 1usize << shift;
        let len = len.min(size);
        let bytes: Vec<u8> = (0..len).map(|i| i as u8 | 1).collect();
        let mut memory = vec![0u8; 3 * size];
        // SAFETY: the middle third, which outlives the value.
        let data = unsafe { Data::new(memory[size..].as_mut_ptr(), size) };
        let mut got = vec![0; len];
        prop_assert!(data.put(at, bytes.as_ptr(), len, copy));
        prop_assert!(data.get(at, got.as_mut_ptr(), len, copy));
        prop_assert_eq!(got, bytes);
        let (start, run) = data.run(at);
        prop_assert_eq!((start as usize - memory.as_ptr() as usize, run), (size + at as usize % size, size - at as usize % size));
        prop_assert!(memory[..size].iter().chain(&memory[2 * size..]).all(|b| *b == 0), "outside of the ring");
        prop_assert_eq!(memory.iter().filter(|b| **b != 0).count(), len);
    }
}

#[test]
fn a_copy_that_fails_is_told_of() {
    let mut ring = Ring::entered(64, 40);
    let data = ring.data();
    let mut room = [0; 40];
    for bad in 0..2 {
        let mut calls = 0;
        let mut fails = |_: *mut u8, _: *const u8, len: usize| {
            calls += 1;
            len != 0 && calls != bad + 1
        };
        assert!(!data.put(40, room.as_ptr(), 40, &mut fails), "piece {bad}");
        calls = 0;
        let mut fails = |_: *mut u8, _: *const u8, len: usize| {
            calls += 1;
            len != 0 && calls != bad + 1
        };
        assert!(!data.get(40, room.as_mut_ptr(), 40, &mut fails), "piece {bad}");
    }
}

#[test]
fn small_traffic_stays_at_the_base() {
    let mut ring = Ring::entered(1 << 16, 1000);
    for round in 0..1000u64 {
        ring.look();
        assert_eq!(ring.output.at(), 0, "round {round}");
        assert_eq!(ring.write(&[round as u8; 100]), 100);
        assert_eq!(ring.read(100), [round as u8; 100]);
    }
}

#[test]
fn the_base_stays_while_something_is_unread() {
    let mut ring = Ring::entered(64, 0);
    ring.write(&[1; 10]);
    assert_eq!(ring.read(9), [1; 9]);
    ring.look();
    assert_eq!(ring.output.at(), 10);
    assert_eq!(ring.read(1), [1]);
    ring.look();
    assert_eq!(ring.output.at(), 0);
}

#[test]
fn a_full_ring_takes_nothing_until_it_is_looked_at() {
    let mut ring = Ring::entered(16, 0);
    assert_eq!(ring.write(&[7; 20]), 16);
    assert_eq!(ring.write(&[8]), 0);
    assert_eq!(ring.read(5), [7; 5]);
    assert_eq!(ring.write(&[8]), 0, "the writer does not know yet");
    ring.look();
    assert_eq!(ring.write(&[8; 20]), 5);
    assert_eq!(ring.read(99), [[7; 11].as_slice(), &[8; 5]].concat());
}

#[test]
fn a_reader_ends_it_where_it_is() {
    let mut ring = Ring::entered(16, 100);
    ring.write(&[1; 10]);
    ring.read(4);
    ring.input.freeze(&ring.reader);
    assert_eq!(ring.output.look(&ring.reader), Ok(Head::Frozen(104)));
    assert_eq!(ring.output.unread(), 6, "to be sent by kernel");
    assert_eq!(ring.input.is_frozen(&ring.reader), Ok(true));
    assert_eq!(ring.input.advance(&ring.reader, 6), Ok(Advance::Frozen));
    assert_eq!(ring.input.pos, 104, "what was read after the end is forgotten");
    assert_eq!(ring.output.mark_copying(&ring.writer, &ring.reader), Ok(Head::Frozen(104)), "too late for copies");
}

#[test]
fn copies_begin_where_the_reader_is_and_do_not_stop_it() {
    let mut ring = Ring::entered(16, 100);
    ring.write(&[1; 10]);
    ring.read(4);
    assert_eq!(ring.output.mark_copying(&ring.writer, &ring.reader), Ok(Head::At(104)));
    assert!(!ring.input.is_copying(), "it has not looked yet");
    assert_eq!(ring.read(3), [1; 3]);
    assert!(ring.input.is_copying());
    assert_eq!(ring.writer.resume.load(Relaxed), 104);
    assert_eq!((ring.input.is_frozen(&ring.reader), ring.output.look(&ring.reader)), (Ok(false), Ok(Head::At(107))));
    assert!(!ring.input.is_complete(&ring.writer));
    ring.output.complete(&ring.writer, 6);
    assert!(ring.input.is_complete(&ring.writer));
    assert_eq!(ring.read(9), [1; 3]);
    ring.input.leave(&ring.reader);
    assert_eq!((ring.input.is_copying(), ring.reader.head.load(Relaxed)), (false, 110 | FROZEN));
}

#[test]
fn a_stretch_that_nobody_entered_can_still_be_entered_while_it_is_copied() {
    let mut ring = Ring::begun(16, 100);
    ring.write(&[1; 10]);
    assert_eq!(ring.output.look(&ring.reader), Ok(Head::At(100)), "the old word says nothing of it");
    assert_eq!(ring.output.mark_copying(&ring.writer, &ring.reader), Ok(Head::At(100)));
    assert_eq!(ring.output.look(&ring.reader), Ok(Head::At(100)), "nor does our mark on it");
    let stretch = ring.input.announced(&ring.writer).expect("announced");
    assert!(!stretch.is_cancelled(&ring.reader));
    assert_eq!((stretch.from, ring.input.enter(&ring.reader, stretch)), (100, Ok(true)));
    assert!(ring.input.is_copying());
    assert_eq!(ring.read(4), [1; 4]);
    assert_eq!(ring.output.look(&ring.reader), Ok(Head::At(104)));
}

#[test]
fn a_stretch_that_was_ended_where_it_began_is_not_entered() {
    let mut ring = Ring::begun(16, 100);
    ring.reader.head.store(100 | FROZEN, Relaxed);
    let stretch = ring.input.announced(&ring.writer).expect("announced");
    assert!(stretch.is_cancelled(&ring.reader));
    assert_eq!(ring.input.enter(&ring.reader, stretch), Ok(false));
    assert_eq!(ring.input.announced(&ring.writer), None, "and is dealt with");
}

#[test]
fn the_mark_of_an_old_stretch_means_nothing() {
    let mut ring = Ring::entered(16, 100);
    ring.write(&[1; 10]);
    assert_eq!(ring.output.mark_copying(&ring.writer, &ring.reader), Ok(Head::At(100)));
    ring.read(2);
    ring.input.freeze(&ring.reader);
    assert_eq!(ring.output.look(&ring.reader), Ok(Head::Frozen(102)));
    assert_eq!(ring.output.begin(&ring.writer, &ring.reader, 111), Ok(()));
    let mut input = Input::at_position(111);
    let stretch = input.announced(&ring.writer).expect("announced");
    assert_eq!((input.enter(&ring.reader, stretch), input.is_copying()), (Ok(true), false));
}

#[test]
fn the_next_stretch_needs_a_byte_between() {
    let mut ring = Ring::entered(16, 100);
    ring.write(&[1; 10]);
    ring.read(10);
    ring.output.complete(&ring.writer, 0);
    ring.input.leave(&ring.reader);
    assert_eq!(ring.output.begin(&ring.writer, &ring.reader, 110), Err(Lie), "old and new would look alike");
    assert_eq!(ring.output.begin(&ring.writer, &ring.reader, 111), Ok(()));
    assert_eq!(ring.output.epoch(), 2);
}

#[test]
fn lies_are_noticed() {
    let mut ring = Ring::entered(16, 100);
    ring.write(&[1; 10]);
    for tail in [99, 117, 0, u64::MAX, 110 | FROZEN, 110 | COPYING] {
        ring.writer.tail.store(tail, Relaxed);
        assert_eq!(ring.input.available(&ring.writer, 16), Err(Lie), "tail {tail:#x}");
    }
    ring.writer.tail.store(110, Relaxed);
    for head in [99, 111, 0, UNUSED - 1, 99 | FROZEN, 111 | FROZEN, 99 | COPYING, 111 | COPYING | FROZEN] {
        ring.reader.head.store(head, Relaxed);
        assert_eq!(ring.output.look(&ring.reader), Err(Lie), "head {head:#x}");
        assert_eq!(ring.output.mark_copying(&ring.writer, &ring.reader), Err(Lie), "head {head:#x}");
        assert_eq!(ring.input.advance(&ring.reader, 1), Err(Lie), "head {head:#x}");
    }
}
