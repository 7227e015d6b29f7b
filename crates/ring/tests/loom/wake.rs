//! Publishing against sleeping: a thread that sleeps while there are bytes is woken.

use crate::engine::{Arc, explore, thread};
use crate::ring_direction::Direction;
use crate::sleep::Place;
use crate::{SIZE, START, drain, put};
use sidestep_ring::{Input, doorbell};

/// A blocking call: it looks at the ring itself before it sleeps.
///
/// Catches: no fence in `publish`; no fence in `doorbell::arm`; no exchange of `armed`; `tail` stored or loaded Relaxed.
#[test]
fn a_blocking_reader_is_woken() {
    explore("a_blocking_reader_is_woken", 5, || {
        let shared = Arc::new((Direction::new(SIZE), Place::new()));
        let (mut output, mut input) = shared.0.entered(START);
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    put(&shared.0, &mut output);
                    shared.1.ring(0);
                }
            })
        };
        let (direction, place) = &*shared;
        while input.pos < START + 2 {
            if drain(direction, &mut input) {
                continue;
            }
            place.sleep_unless(|| input.available(&direction.writer, SIZE) != Ok(0));
            place.poll();
        }
        producer.join().unwrap();
    });
}

/// An epoll set: it looks only at the doorbell, whose marks say which rings have something.
fn wait_as_a_set(place: &Place, directions: &[Direction], inputs: &mut [Input], slots: &[usize], total: u64) {
    while inputs.iter().map(|i| i.pos - START).sum::<u64>() < total {
        let mut found = false;
        doorbell::poll(&place.doorbell, |slot| {
            let i = slots.iter().position(|s| *s == slot).expect("a slot that was rung");
            found |= drain(&directions[i], &mut inputs[i]);
        });
        if found {
            continue;
        }
        place.sleep_unless(|| doorbell::is_ready(&place.doorbell));
    }
}

/// Two publications of one producer: the second finds the bits that the first has set, or finds them taken.
///
/// Catches: no fence in `publish` (seen through the bits that are still set); no fence in `poll` before the
/// slots are looked at; no fence in `doorbell::arm`; no fence after the bits are set; the summary set before the bit.
#[test]
fn a_set_is_woken() {
    explore("a_set_is_woken", 5, || {
        let shared = Arc::new(([Direction::new(SIZE)], Place::new()));
        let (mut output, input) = shared.0[0].entered(START);
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    put(&shared.0[0], &mut output);
                    shared.1.ring(70);
                }
            })
        };
        wait_as_a_set(&shared.1, &shared.0, &mut [input], &[70], 2);
        producer.join().unwrap();
    });
}

/// Two producers at one doorbell, in slots of one word or of two.
fn two_producers(name: &str, slots: [usize; 2]) {
    explore(name, 3, move || {
        let shared = Arc::new(([Direction::new(SIZE), Direction::new(SIZE)], Place::new()));
        let ends = [shared.0[0].entered(START), shared.0[1].entered(START)];
        let mut inputs = ends.map(|(_, input)| input);
        let producers = [0, 1].map(|i| {
            let (shared, mut output) = (shared.clone(), ends[i].0);
            thread::spawn(move || {
                put(&shared.0[i], &mut output);
                shared.1.ring(slots[i]);
            })
        });
        wait_as_a_set(&shared.1, &shared.0, &mut inputs, &slots, 2);
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

/// Catches: `poll` that loads the bits and then clears them (another producer's bit is lost in between).
#[test]
fn two_producers_in_one_word() {
    two_producers("two_producers_in_one_word", [0, 1]);
}

/// Catches: `poll` that loads the summary and then clears it.
#[test]
fn two_producers_in_two_words() {
    two_producers("two_producers_in_two_words", [0, 64]);
}

/// The broker freezes a ring and wakes a thread that waits for that.
///
/// Catches: no fence in `doorbell::arm`; no fence after the hint together with none in `ring_and_leave_armed`.
#[test]
fn the_broker_wakes_a_sleeper() {
    explore("the_broker_wakes_a_sleeper", 5, || {
        let shared = Arc::new((Direction::new(SIZE), Place::new()));
        let (_, mut input) = shared.0.entered(START);
        shared.1.ring(0); // an earlier signal that nobody has taken: the broker finds the bits set
        let broker = {
            let shared = shared.clone();
            thread::spawn(move || {
                assert!(shared.0.half().freeze(), "it was not frozen");
                shared.1.ring_as_broker(0);
            })
        };
        let (direction, place) = &*shared;
        while input.is_frozen(&direction.reader) == Ok(false) {
            place.sleep_unless(|| input.is_frozen(&direction.reader) == Ok(true));
        }
        broker.join().unwrap();
        assert_eq!(direction.half().hints(), 1, "the writer finds the hint");
    });
}
