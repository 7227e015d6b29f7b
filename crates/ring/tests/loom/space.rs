//! The other direction of waking: a writer that waits for space is told when half of the ring is free.

use crate::engine::{Arc, explore, thread};
use crate::ring_direction::Direction;
use crate::sleep::Place;
use crate::{SIZE, START, get, put};
use sidestep_ring::{Input, Output, space};

/// Bytes that go through the ring.
const TOTAL: u64 = 4;
const END: u64 = START + TOTAL;

/// The writer's look: stores the wish, and returns whether half of the ring is free.
fn has_space(direction: &Direction, output: &mut Output) -> bool {
    space::wish(&direction.writer);
    output.poll(&direction.reader).expect("no violation");
    space::is_enough(output.unread() as usize, SIZE)
}

fn write_all(direction: &Direction, place: &Place, readers: &Place, output: &mut Output) {
    while output.tail < END {
        if output.space(SIZE) > 0 {
            put(direction, output);
            readers.ring(0);
            continue;
        }
        if has_space(direction, output) {
            continue;
        }
        place.sleep_unless(|| has_space(direction, output));
        place.poll();
    }
}

fn read_all(direction: &Direction, place: &Place, own: &Place, input: &mut Input) {
    while input.pos < END {
        let n = input.available(&direction.writer, SIZE).expect("no violation");
        if n > 0 {
            get(direction, input);
            if space::grant(&direction.writer, n - 1, SIZE) {
                place.ring(0);
            }
            continue;
        }
        own.sleep_unless(|| input.available(&direction.writer, SIZE) != Ok(0));
    }
}

/// Catches: no fence after the exchange in `Input::advance`; no fence between wish and look; `wants_space` taken
/// back by a plain store; `head` exchanged or loaded Relaxed (bytes overwritten before they are read).
#[test]
fn a_waiting_writer_is_woken() {
    explore("a_waiting_writer_is_woken", 4, || {
        let shared = Arc::new((Direction::new(SIZE), Place::new(), Place::new()));
        let (mut output, mut input) = shared.0.entered(START);
        while output.space(SIZE) > 0 {
            put(&shared.0, &mut output);
        }
        shared.1.ring(0); // an earlier signal that nobody has taken: the next finds the bits set
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || read_all(&shared.0, &shared.1, &shared.2, &mut input))
        };
        write_all(&shared.0, &shared.1, &shared.2, &mut output);
        reader.join().unwrap();
    });
}
