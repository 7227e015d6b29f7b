//! The other direction of waking: a writer that waits for space is told when half of the ring is free.

use crate::explore;
use crate::world::{Direction, Place, SIZE, START};
use loom::sync::Arc;
use loom::thread;
use sidestep_ring::{Input, Output, bell, space};

/// Bytes that go through the ring.
const TOTAL: u64 = 4;
const END: u64 = START + TOTAL;

/// The writer's look: says that it waits, then whether half of the ring is free.
fn has_space(direction: &Direction, output: &mut Output) -> bool {
    space::wish(&direction.writer);
    output.look(&direction.reader).expect("an honest reader");
    space::is_enough(output.unread() as usize, SIZE)
}

fn write_all(direction: &Direction, place: &Place, readers: &Place, output: &mut Output) {
    while output.tail < END {
        if output.space(SIZE) > 0 {
            direction.put(output);
            readers.ring(0);
            continue;
        }
        if has_space(direction, output) {
            continue;
        }
        bell::doze(&place.bell);
        bell::settle();
        if !has_space(direction, output) {
            place.eventfd.wait();
        }
        bell::rise(&place.bell);
        bell::take(&place.bell, |_| {});
    }
}

fn read_all(direction: &Direction, place: &Place, own: &Place, input: &mut Input) {
    while input.pos < END {
        let n = input.available(&direction.writer, SIZE).expect("an honest writer");
        if n > 0 {
            direction.get(input).expect("an honest writer");
            if space::grant(&direction.writer, n - 1, SIZE) {
                place.ring(0);
            }
            continue;
        }
        bell::doze(&own.bell);
        bell::settle();
        if input.available(&direction.writer, SIZE) == Ok(0) {
            own.eventfd.wait();
        }
        bell::rise(&own.bell);
    }
}

/// Catches: no fence after the exchange in `Input::advance`; no fence between wish and look; `wants_space` taken
/// back by a plain store; `head` exchanged or loaded Relaxed (bytes overwritten before they are read).
#[test]
fn a_waiting_writer_is_woken() {
    explore("a_waiting_writer_is_woken", 4, || {
        let shared = Arc::new((Direction::new(), Place::new(), Place::new()));
        let (mut output, mut input) = shared.0.entered();
        while output.space(SIZE) > 0 {
            shared.0.put(&mut output);
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
