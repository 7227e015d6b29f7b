//! The broker's answer arrives while a thread closes the connection.

use crate::engine::{Arc, explore, thread};
use sidestep_conn::phase::{Cell, Event, Phase};

/// Either the slot becomes the connection's, and is given back with it; or it never does, and the offer is withdrawn.
///
/// Catches: a phase that is looked at, and then stored.
#[test]
fn an_answer_and_a_close_leave_one_debt() {
    explore("an_answer_and_a_close_leave_one_debt", 5, || {
        let cell = Arc::new(Cell::default());
        cell.go(Event::Open).expect("free");
        cell.go(Event::Offer { passive: false }).expect("open");
        let generation = cell.generation();
        let listener = {
            let cell = cell.clone();
            thread::spawn(move || cell.go_in(generation, Event::Assign).is_some())
        };
        let entering = {
            let cell = cell.clone();
            thread::spawn(move || cell.go(Event::Enter).is_some())
        };
        let closed = cell.go(Event::Close).expect("open");
        cell.go(Event::Free).expect("closed");
        cell.go(Event::Open).expect("free");
        let (assigned, entered) = (listener.join().unwrap(), entering.join().unwrap());
        assert_eq!(closed.gives_slot_back(), assigned);
        assert_eq!(closed.withdraws(), !assigned);
        assert!(assigned || !entered);
        assert!(
            cell.is(Phase::Kernel { for_good: false }),
            "the next connection has met what was meant for the last one"
        );
    });
}
