//! Several threads sleep at one waiter (one epoll set): a thread that wakes up does not make the others miss news.

use crate::engine::{Arc, AtomicBool, explore, thread};
use crate::ring_direction::Direction;
use crate::sleep::Place;
use crate::{SIZE, START, put};
use sidestep_abi::sync::Ordering::*;
use sidestep_ring::doorbell;

/// What the threads of the process share.
struct Set {
    direction: Direction,
    place: Place,
    /// A thread has taken the news.
    served: AtomicBool,
}

impl Set {
    /// Takes the news. A thread that finds some releases the other one, too, which ends the test.
    fn harvest(&self) {
        if self.place.poll() {
            assert_eq!(self.direction.half().tail(), START + 1, "what was rung for is there");
            self.served.store(true, Release);
            self.place.eventfd.write();
        }
    }
}

/// One thread whose timeout passes at once, one that waits without a limit, and one piece of news.
fn with_one_whose_time_is_up(name: &'static str, brief: fn(&Set)) {
    explore(name, 3, move || {
        let direction = Direction::new(SIZE);
        let (mut output, _) = direction.entered(START);
        let set = Arc::new(Set { direction, place: Place::new(), served: AtomicBool::new(false) });
        let patient = {
            let set = set.clone();
            thread::spawn(move || {
                while !set.served.load(Acquire) {
                    set.place.sleep_unless(|| doorbell::is_ready(&set.place.doorbell) || set.served.load(Acquire));
                    set.harvest();
                }
            })
        };
        let brief = {
            let set = set.clone();
            thread::spawn(move || brief(&set))
        };
        put(&set.direction, &mut output);
        set.place.ring(0);
        brief.join().unwrap();
        patient.join().unwrap();
    });
}

/// Catches: a `Sleepers::disarm` without the second look at the sleepers; the second `arm` without a fence.
#[test]
fn the_last_one_up_does_not_silence_the_next() {
    with_one_whose_time_is_up("the_last_one_up_does_not_silence_the_next", |set| {
        set.place.arm();
        set.place.disarm(false);
        set.harvest();
    });
}

/// Catches: a `Sleepers::disarm_if_idle` that silences a thread that has gone to sleep meanwhile.
#[test]
fn one_that_has_gone_on_listening_does_not_silence_the_next() {
    with_one_whose_time_is_up("one_that_has_gone_on_listening_does_not_silence_the_next", |set| {
        set.place.arm();
        set.place.disarm(true);
        set.place.disarm_if_idle();
        set.harvest();
    });
}
