//! Publish against sleep: whoever sleeps while there are bytes is woken.

use crate::explore;
use crate::world::{Direction, Place, START};
use loom::sync::Arc;
use loom::thread;
use sidestep_ring::{Input, bell};

/// A blocking call: it looks at the ring itself before it sleeps.
///
/// Catches: no fence in `publish`; no fence in `settle`; no exchange of `asleep`; `tail` stored or loaded Relaxed.
#[test]
fn a_blocking_reader_is_woken() {
    explore("a_blocking_reader_is_woken", 5, || {
        let shared = Arc::new((Direction::new(), Place::new()));
        let (mut output, mut input) = shared.0.entered();
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    shared.0.put(&mut output);
                    shared.1.ring(0);
                }
            })
        };
        let (direction, place) = &*shared;
        while input.pos < START + 2 {
            if direction.drain(&mut input) {
                continue;
            }
            bell::doze(&place.bell);
            bell::settle();
            if input.available(&direction.writer, 2) == Ok(0) {
                place.eventfd.wait();
            }
            bell::rise(&place.bell);
            bell::take(&place.bell, |_| {});
        }
        producer.join().unwrap();
    });
}

/// An epoll set: it looks only at the bell, and takes from it which rings have something.
fn wait_as_a_set(place: &Place, directions: &[Direction], inputs: &mut [Input], slots: &[usize], total: u64) {
    while inputs.iter().map(|i| i.pos - START).sum::<u64>() < total {
        let mut found = false;
        bell::take(&place.bell, |slot| {
            let i = slots.iter().position(|s| *s == slot).expect("a slot that was rung");
            found |= directions[i].drain(&mut inputs[i]);
        });
        if found {
            continue;
        }
        bell::doze(&place.bell);
        bell::settle();
        if !bell::is_ready(&place.bell) {
            place.eventfd.wait();
        }
        bell::rise(&place.bell);
    }
}

/// Two publications by one producer: the second finds the bits as the first has left them, or taken.
///
/// Catches: no fence in `publish` (seen through the bits that are still set); no fence in `take` before the
/// slots are looked at; no fence in `settle`; no fence after the bits are set; the summary set before the bit.
#[test]
fn a_set_is_woken() {
    explore("a_set_is_woken", 5, || {
        let shared = Arc::new(([Direction::new()], Place::new()));
        let (mut output, input) = shared.0[0].entered();
        let producer = {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    shared.0[0].put(&mut output);
                    shared.1.ring(70);
                }
            })
        };
        wait_as_a_set(&shared.1, &shared.0, &mut [input], &[70], 2);
        producer.join().unwrap();
    });
}

/// Two producers on one bell, in slots of one word or of two.
fn two_producers(name: &str, slots: [usize; 2]) {
    explore(name, 3, move || {
        let shared = Arc::new(([Direction::new(), Direction::new()], Place::new()));
        let ends = [shared.0[0].entered(), shared.0[1].entered()];
        let mut inputs = ends.map(|(_, input)| input);
        let producers = [0, 1].map(|i| {
            let (shared, mut output) = (shared.clone(), ends[i].0);
            thread::spawn(move || {
                shared.0[i].put(&mut output);
                shared.1.ring(slots[i]);
            })
        });
        wait_as_a_set(&shared.1, &shared.0, &mut inputs, &slots, 2);
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

/// Catches: `take` that loads the bits and then clears them (another producer's bit is lost in between).
#[test]
fn two_producers_in_one_word() {
    two_producers("two_producers_in_one_word", [0, 1]);
}

/// Catches: `take` that loads the summary and then clears it.
#[test]
fn two_producers_in_two_words() {
    two_producers("two_producers_in_two_words", [0, 64]);
}
