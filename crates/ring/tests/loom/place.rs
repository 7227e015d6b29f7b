//! Several threads that sleep in one place (one epoll set): one that gets up does not let the others oversleep.

use crate::explore;
use crate::world::{Direction, Place, START};
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;
use sidestep_abi::sync::Ordering::*;
use sidestep_ring::bell::{self, Sleepers};

/// What the threads of the process share: the place, and how many of them sleep there.
struct Set {
    direction: Direction,
    place: Place,
    sleepers: Sleepers,
    /// The news has been taken.
    served: AtomicBool,
}

impl Set {
    fn lie_down(&self) {
        self.sleepers.lie_down(|| core::iter::once(&self.place.bell));
    }

    fn get_up(&self, listening: bool) {
        if self.sleepers.get_up(listening, || core::iter::once(&self.place.bell)) {
            self.place.eventfd.write();
        }
    }

    fn hush(&self) {
        if self.sleepers.hush(|| core::iter::once(&self.place.bell)) {
            self.place.eventfd.write();
        }
    }

    /// Takes the news. Whoever finds some lets the other go too, which ends the model.
    fn harvest(&self) {
        let mut found = false;
        bell::take(&self.place.bell, |_| found = true);
        if found {
            assert_eq!(self.direction.writer.tail.load(Relaxed), START + 1, "what was rung for is there");
            self.served.store(true, Release);
            self.place.eventfd.write();
        }
    }
}

/// One thread whose time is up at once, one that waits for ever, and one piece of news.
fn with_one_whose_time_is_up(name: &'static str, brief: fn(&Set)) {
    explore(name, 3, move || {
        let direction = Direction::new();
        let (mut output, _) = direction.entered();
        let set = Arc::new(Set {
            direction,
            place: Place::new(),
            sleepers: Sleepers::default(),
            served: AtomicBool::new(false),
        });
        let patient = {
            let set = set.clone();
            thread::spawn(move || {
                while !set.served.load(Acquire) {
                    set.lie_down();
                    if !bell::is_ready(&set.place.bell) && !set.served.load(Acquire) {
                        set.place.eventfd.wait();
                    }
                    set.get_up(false);
                    set.harvest();
                }
            })
        };
        let brief = {
            let set = set.clone();
            thread::spawn(move || brief(&set))
        };
        set.direction.put(&mut output);
        set.place.ring(0);
        brief.join().unwrap();
        patient.join().unwrap();
    });
}

/// Catches: a `Sleepers::get_up` without the second look at the sleepers; the second `doze` without a fence.
#[test]
fn the_last_one_up_does_not_silence_the_next() {
    with_one_whose_time_is_up("the_last_one_up_does_not_silence_the_next", |set| {
        set.lie_down();
        set.get_up(false);
        set.harvest();
    });
}

/// Catches: a `Sleepers::hush` that silences those who have lain down meanwhile.
#[test]
fn one_that_has_gone_on_listening_does_not_silence_the_next() {
    with_one_whose_time_is_up("one_that_has_gone_on_listening_does_not_silence_the_next", |set| {
        set.lie_down();
        set.get_up(true);
        set.hush();
        set.harvest();
    });
}
