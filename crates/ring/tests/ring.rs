//! The ring as a queue of bytes, its end by either end, and words that no correct peer can write.
#![cfg(not(loom))]

#[path = "../../../fuzz/bodies/engine.rs"]
mod engine;
#[path = "../../../fuzz/bodies/input.rs"]
mod input;
#[path = "../../../fuzz/bodies/memory.rs"]
mod memory;
#[path = "../../../fuzz/bodies/ring_direction.rs"]
mod ring_direction;
#[path = "../../../fuzz/bodies/ring_queue.rs"]
mod ring_queue;

use proptest::prelude::*;
use ring_direction::Direction;
use ring_queue::Op;
use sidestep_abi::link::{COPYING, FROZEN, UNUSED};
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_ring::{Advance, Data, Head, Input, Output, PeerViolation};

/// A copy between a ring and a buffer of a test, which never fails.
fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
    // SAFETY: tests ask for as many bytes as both have.
    unsafe { to.copy_from_nonoverlapping(from, len) };
    true
}

/// A direction with both of its ends.
struct Ring {
    direction: Direction,
    output: Output,
    input: Input,
}

impl Ring {
    fn begun(size: usize, from: u64) -> Ring {
        let direction = Direction::new(size);
        let output = direction.begun(from);
        Ring { direction, output, input: Input::at_position(from) }
    }

    fn entered(size: usize, from: u64) -> Ring {
        let direction = Direction::new(size);
        let (output, input) = direction.entered(from);
        Ring { direction, output, input }
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        self.direction.write(&mut self.output, bytes)
    }

    fn read(&mut self, max: usize) -> Vec<u8> {
        let (bytes, advance) = self.direction.read(&mut self.input, max).expect("an honest writer");
        assert_eq!(advance, Advance::Done);
        bytes
    }

    fn look(&mut self) {
        assert!(matches!(self.direction.look(&mut self.output), Ok(Head::At(_))));
    }
}

fn op() -> impl Strategy<Value = Op> {
    any::<[u8; 2]>().prop_map(|bytes| Op::from_bytes(&mut input::Input::new(&bytes)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_queue_of_bytes(
        shift in 0u32..8,
        from in prop_oneof![Just(0), 0u64..1 << 62],
        ops in prop::collection::vec(op(), 1..200)
    ) {
        ring_queue::check(1 << shift, from, ops);
    }

    /// Wherever a hostile peer puts the base, bytes come back as they were put, and stay within the ring.
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
    let mut memory = [0; 64];
    // SAFETY: the memory outlives the value.
    let data = unsafe { Data::new(memory.as_mut_ptr(), memory.len()) };
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
    ring.input.freeze(&ring.direction.reader, |_| true);
    assert_eq!(ring.output.poll(&ring.direction.reader), Ok(Head::Frozen(104)));
    assert_eq!(ring.output.unread(), 6, "to be sent by kernel");
    assert_eq!(ring.input.is_frozen(&ring.direction.reader), Ok(true));
    assert_eq!(ring.input.advance(&ring.direction.reader, 6), Ok(Advance::Frozen));
    assert_eq!(ring.input.pos, 104, "what was read after the end is forgotten");
    assert_eq!(
        ring.output.mark_copying(&ring.direction.writer, &ring.direction.reader),
        Ok(Head::Frozen(104)),
        "too late for copies"
    );
}

#[test]
fn copies_begin_where_the_reader_is_and_do_not_stop_it() {
    let mut ring = Ring::entered(16, 100);
    ring.write(&[1; 10]);
    ring.read(4);
    assert_eq!(ring.output.mark_copying(&ring.direction.writer, &ring.direction.reader), Ok(Head::At(104)));
    assert!(!ring.input.is_copying(), "it has not looked yet");
    assert_eq!(ring.read(3), [1; 3]);
    assert!(ring.input.is_copying());
    assert_eq!(ring.direction.writer.resume.load(Relaxed), 104);
    assert_eq!(
        (ring.input.is_frozen(&ring.direction.reader), ring.output.poll(&ring.direction.reader)),
        (Ok(false), Ok(Head::At(107)))
    );
    assert!(!ring.input.is_complete(&ring.direction.writer));
    ring.output.complete(&ring.direction.writer, 6);
    assert!(ring.input.is_complete(&ring.direction.writer));
    assert_eq!(ring.read(9), [1; 3]);
    ring.input.leave(&ring.direction.reader);
    assert_eq!((ring.input.is_copying(), ring.direction.reader.head.load(Relaxed)), (false, 110 | FROZEN));
}

#[test]
fn a_stretch_that_nobody_entered_can_still_be_entered_while_it_is_copied() {
    let mut ring = Ring::begun(16, 100);
    ring.write(&[1; 10]);
    assert_eq!(ring.output.poll(&ring.direction.reader), Ok(Head::At(100)), "the old word says nothing of it");
    assert_eq!(ring.output.mark_copying(&ring.direction.writer, &ring.direction.reader), Ok(Head::At(100)));
    assert_eq!(ring.output.poll(&ring.direction.reader), Ok(Head::At(100)), "nor does our mark on it");
    let stretch = ring.input.announced(&ring.direction.writer).expect("announced");
    assert!(!stretch.is_cancelled(&ring.direction.reader));
    assert_eq!((stretch.from, ring.input.enter(&ring.direction.reader, stretch)), (100, Ok(true)));
    assert!(ring.input.is_copying());
    assert_eq!(ring.read(4), [1; 4]);
    assert_eq!(ring.output.poll(&ring.direction.reader), Ok(Head::At(104)));
}

#[test]
fn a_stretch_that_was_ended_where_it_began_is_not_entered() {
    let mut ring = Ring::begun(16, 100);
    ring.direction.reader.head.store(100 | FROZEN, Relaxed);
    let stretch = ring.input.announced(&ring.direction.writer).expect("announced");
    assert!(stretch.is_cancelled(&ring.direction.reader));
    assert_eq!(ring.input.enter(&ring.direction.reader, stretch), Ok(false));
    assert_eq!(ring.input.announced(&ring.direction.writer), None, "and is dealt with");
}

#[test]
fn the_mark_of_an_old_stretch_means_nothing() {
    let mut ring = Ring::entered(16, 100);
    ring.write(&[1; 10]);
    assert_eq!(ring.output.mark_copying(&ring.direction.writer, &ring.direction.reader), Ok(Head::At(100)));
    ring.read(2);
    ring.input.freeze(&ring.direction.reader, |_| true);
    assert_eq!(ring.output.poll(&ring.direction.reader), Ok(Head::Frozen(102)));
    assert_eq!(ring.output.begin(&ring.direction.writer, &ring.direction.reader, 111), Ok(()));
    let mut input = Input::at_position(111);
    let stretch = input.announced(&ring.direction.writer).expect("announced");
    assert_eq!((input.enter(&ring.direction.reader, stretch), input.is_copying()), (Ok(true), false));
}

#[test]
fn the_next_stretch_needs_a_byte_between() {
    let mut ring = Ring::entered(16, 100);
    ring.write(&[1; 10]);
    ring.read(10);
    ring.output.complete(&ring.direction.writer, 0);
    ring.input.leave(&ring.direction.reader);
    assert_eq!(
        ring.output.begin(&ring.direction.writer, &ring.direction.reader, 110),
        Err(PeerViolation::Head),
        "old and new would look alike"
    );
    assert_eq!(ring.output.begin(&ring.direction.writer, &ring.direction.reader, 111), Ok(()));
    assert_eq!(ring.output.epoch(), 2);
}

#[test]
fn violations_are_noticed() {
    let mut ring = Ring::entered(16, 100);
    ring.write(&[1; 10]);
    for tail in [99, 117, 0, u64::MAX, 110 | FROZEN, 110 | COPYING] {
        ring.direction.writer.tail.store(tail, Relaxed);
        assert_eq!(ring.input.available(&ring.direction.writer, 16), Err(PeerViolation::Tail), "tail {tail:#x}");
    }
    ring.direction.writer.tail.store(110, Relaxed);
    for head in [99, 111, 0, UNUSED - 1, 99 | FROZEN, 111 | FROZEN, 99 | COPYING, 111 | COPYING | FROZEN] {
        ring.direction.reader.head.store(head, Relaxed);
        assert_eq!(ring.output.poll(&ring.direction.reader), Err(PeerViolation::Head), "head {head:#x}");
        assert_eq!(
            ring.output.mark_copying(&ring.direction.writer, &ring.direction.reader),
            Err(PeerViolation::Head),
            "head {head:#x}"
        );
        assert_eq!(ring.input.advance(&ring.direction.reader, 1), Err(PeerViolation::Head), "head {head:#x}");
    }
}
