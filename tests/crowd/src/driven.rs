//! One thread works on one connection, by calls that do not wait; and gives it to other descriptors and processes.

use sidestep_posix::sys::process::in_child;
use sidestep_posix::sys::{cpu, fds};

use crate::hand::{self, Hand};
use crate::note;
use crate::side::Side;
use crate::wait::{Waiter, Way};

pub fn work(mut side: Side, way: Way) {
    fds::set_nonblocking(side.fd(), true);
    let mut waiter = Waiter::new(way);
    loop {
        if let Some(hand) = due(&mut side) {
            waiter.forget();
            note::step("gives it on", name(hand));
            match hand {
                Hand::Fork => return in_a_child(side, way),
                Hand::ForkHolds => held(&side),
                _ => {
                    let fd = hand::renumbered(side.fd(), hand);
                    side.moved_to(fd);
                }
            }
        }
        let would_wait = side.turn();
        if side.is_done() {
            break;
        }
        if would_wait || (way.tells_levels() && side.rng.below(2) == 0) {
            assert_ne!(side.wanted(), 0, "nothing is left to wait for");
            waiter.until(side.fd(), side.wanted());
        }
        if side.plan.pauses {
            side.rng.pause();
        }
    }
    waiter.forget();
    side.close();
}

fn due(side: &mut Side) -> Option<Hand> {
    let (at, hand) = *side.plan.hands.first()?;
    (side.at() >= at).then(|| {
        side.plan.hands.remove(0);
        hand
    })
}

fn name(hand: Hand) -> &'static str {
    match hand {
        Hand::Fork => "to a child, and waits for that",
        Hand::ForkHolds => "to a child, for a moment",
        _ => "to another descriptor",
    }
}

fn in_a_child(side: Side, way: Way) {
    let (fd, note) = (side.fd(), side.note.clone());
    let child = in_child(|| {
        note::watch_alone();
        hand::keep_only(fd);
        work(side, way);
    });
    fds::close(fd).expect("close");
    child.succeed();
    note.ended();
}

/// The child ends by itself; whoever of both ends first.
fn held(side: &Side) {
    let fd = side.fd();
    let child = in_child(|| {
        hand::keep_only(fd);
        cpu::sleep_ms(1);
    });
    child.succeed();
}
