//! The end of a stretch: writer, reader and broker agree on the position, and each byte is carried only once.

use crate::engine::{Arc, explore, thread};
use crate::ring_direction::Direction;
use crate::{SIZE, START, get, put};
use sidestep_ring::{Advance, Head, Input, Output};

/// Reads until the ring is empty or the stretch has ended. Returns the position up to which it kept the bytes.
fn read(direction: &Direction, input: &mut Input) -> u64 {
    let mut kept = input.pos;
    while input.is_frozen(&direction.reader) == Ok(false) && input.available(&direction.writer, SIZE).unwrap() > 0 {
        match get(direction, input) {
            Advance::Done => kept += 1,
            Advance::Frozen => break,
        }
    }
    kept
}

/// Publishes one more byte, and marks the stretch for copies. Returns where they begin, or where the stretch has ended.
fn write_and_mark(direction: &Direction, output: &mut Output) -> Head {
    put(direction, output);
    let head = output.mark_copying(&direction.writer, &direction.reader).expect("no violation");
    let (Head::At(pos) | Head::Frozen(pos)) = head;
    let expected: Vec<u8> = (pos..output.tail).map(|pos| pos as u8).collect();
    assert_eq!(direction.unread(output, pos), expected, "unread from {pos} on");
    head
}

/// The reader or the broker ends the stretch while the writer marks it: both ends know the same position.
///
/// Catches: `advance` that stores instead of exchanging; `mark_copying` that stores instead of exchanging; an end that `poll`
/// takes from what the writer knew before; a `resume` that is stored after the mark.
fn ended_or_marked(name: &str, by_reader: bool) {
    explore(name, 4, move || {
        let direction = Arc::new(Direction::new(SIZE));
        let (mut output, mut input) = direction.entered(START);
        put(&direction, &mut output);
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                let kept = read(&direction, &mut input);
                if by_reader {
                    input.freeze(&direction.reader, |_| true);
                }
                (kept, input.is_copying(), direction.half().resume())
            })
        };
        let broker = (!by_reader).then(|| {
            let direction = direction.clone();
            thread::spawn(move || {
                assert!(direction.half().freeze(), "it was not frozen");
            })
        });
        let head = write_and_mark(&direction, &mut output);
        if let Some(broker) = broker {
            broker.join().unwrap();
        }
        let (kept, copying, resume) = reader.join().unwrap();
        match head {
            Head::Frozen(end) => assert!(end == kept && !copying, "ended before the mark"),
            Head::At(from) => {
                // A third party ended it at its beginning, before a byte was read. To the writer it looks as if no reader had
                // entered.
                let untouched = !by_reader && kept == START && from == START;
                let expected = if untouched { Head::At(kept) } else { Head::Frozen(kept) };
                assert_eq!(output.poll(&direction.reader), Ok(expected));
                assert!(from <= kept && (!by_reader || copying && resume == from), "both know where copies begin");
            }
        }
    });
}

#[test]
fn the_reader_ends_what_the_writer_marks() {
    ended_or_marked("the_reader_ends_what_the_writer_marks", true);
}

#[test]
fn a_third_party_ends_what_the_writer_marks() {
    ended_or_marked("a_third_party_ends_what_the_writer_marks", false);
}

/// A stretch that is marked while the reader is about to enter it.
///
/// Catches: `epoch` stored or loaded Relaxed; `enter` that stores instead of exchanging.
#[test]
fn marked_before_it_is_entered_or_after() {
    explore("marked_before_it_is_entered_or_after", 4, || {
        let direction = Arc::new(Direction::new(SIZE));
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                let mut input = Input::at_position(START);
                let Some(stretch) = input.announced(&direction.writer) else { return START };
                assert_eq!(input.enter(&direction.reader, stretch), Ok(true), "nobody has cancelled it");
                read(&direction, &mut input)
            })
        };
        let mut output = direction.begun(START);
        let Head::At(from) = write_and_mark(&direction, &mut output) else { panic!("nobody has ended it") };
        let kept = reader.join().unwrap();
        assert!(from <= kept, "the reader has entered");
        assert_eq!(output.poll(&direction.reader), Ok(Head::At(kept)));
    });
}
