//! The end of a stretch: writer, reader and broker agree on the position, and each byte goes one way only.

use crate::explore;
use crate::world::{Direction, SIZE, START};
use loom::sync::Arc;
use loom::thread;
use sidestep_abi::link::FROZEN;
use sidestep_abi::sync::Ordering;
use sidestep_ring::{Advance, Head, Input, Output};

/// Reads until the ring is empty or has ended; the position up to which it kept the bytes.
fn read(direction: &Direction, input: &mut Input) -> u64 {
    let mut kept = input.pos;
    while input.is_frozen(&direction.reader) == Ok(false) && input.available(&direction.writer, SIZE).unwrap() > 0 {
        match direction.get(input).expect("nobody lies") {
            Advance::Done => kept += 1,
            Advance::Frozen => break,
        }
    }
    kept
}

/// A writer that publishes one more byte and ends the stretch: where it ended.
fn write_and_freeze(direction: &Direction, output: &mut Output) -> u64 {
    direction.put(output);
    let end = output.freeze(&direction.reader).expect("nobody lies");
    direction.take_back(output, end);
    end
}

/// Catches: `advance` that stores instead of exchanging; `freeze` that stores instead of exchanging.
#[test]
fn the_writer_ends_it() {
    explore("the_writer_ends_it", 4, || {
        let direction = Arc::new(Direction::new());
        let (mut output, mut input) = direction.entered();
        direction.put(&mut output);
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || read(&direction, &mut input))
        };
        let end = write_and_freeze(&direction, &mut output);
        assert_eq!(reader.join().unwrap(), end, "where the reader stopped, and where the writer saw it stop");
        assert_eq!(direction.reader.head.load(Ordering::Relaxed), end | FROZEN);
    });
}

/// The broker, or the reader's own `freeze`, sets the bit whatever the position is at that time.
///
/// Catches: an end that `look` or `freeze` takes from what the writer knew before.
#[test]
fn a_third_party_ends_it() {
    explore("a_third_party_ends_it", 4, || {
        let direction = Arc::new(Direction::new());
        let (mut output, mut input) = direction.entered();
        direction.put(&mut output);
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || read(&direction, &mut input))
        };
        let broker = {
            let direction = direction.clone();
            thread::spawn(move || {
                direction.reader.head.fetch_or(FROZEN, Ordering::SeqCst);
            })
        };
        let end = write_and_freeze(&direction, &mut output);
        broker.join().unwrap();
        assert_eq!(reader.join().unwrap(), end, "where the reader stopped, and where the writer saw it stop");
        assert_eq!(output.look(&direction.reader), Ok(Head::Frozen(end)));
    });
}

/// A stretch that is cancelled while the reader is about to enter it.
///
/// Catches: `epoch` stored or loaded Relaxed; `enter` that stores instead of exchanging; `freeze` that ends a stretch which nobody has entered
/// anywhere but at its beginning.
#[test]
fn cancelled_or_entered_but_not_both() {
    explore("cancelled_or_entered_but_not_both", 4, || {
        let direction = Arc::new(Direction::new());
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                let mut input = Input { pos: START, ..Input::default() };
                let Some(stretch) = input.announced(&direction.writer) else { return START };
                if input.enter(&direction.reader, stretch).expect("nobody lies") {
                    read(&direction, &mut input)
                } else {
                    assert_eq!(input.is_frozen(&direction.reader), Ok(true));
                    START
                }
            })
        };
        let end = write_and_freeze(&direction, &mut direction.begun());
        assert_eq!(reader.join().unwrap(), end);
    });
}
