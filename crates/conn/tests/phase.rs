//! Invariants of every path through the table of transitions.

use sidestep_conn::phase::{Cell, Event, Phase, Step};
use std::collections::BTreeSet;

const EVENTS: [Event; 17] = [
    Event::Open,
    Event::Offer { passive: false },
    Event::Offer { passive: true },
    Event::Press,
    Event::Lose,
    Event::Assign,
    Event::Enter,
    Event::Ready,
    Event::Keep,
    Event::KeepForNow,
    Event::Break,
    Event::Unfit,
    Event::Demote,
    Event::Release,
    Event::Renew,
    Event::Close,
    Event::Free,
];

/// Slots and offers of one connection that have been given and not returned.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Account {
    offers: i32,
    slots: i32,
    has_been_attached: bool,
}

impl Account {
    fn after(mut self, step: Step, event: Event) -> Account {
        match event {
            Event::Open => self = Account::default(),
            Event::Offer { .. } => self.offers += 1,
            Event::Lose => self.offers -= 1,
            Event::Assign => (self.offers, self.slots) = (self.offers - 1, self.slots + 1),
            Event::Enter => self.has_been_attached = true,
            _ => {}
        }
        self.offers -= i32::from(step.withdraws());
        self.slots -= i32::from(step.gives_slot_back());
        self
    }
}

fn phase_number(phase: Phase) -> usize {
    Phase::ALL.iter().position(|p| *p == phase).expect("listed")
}

/// Calls `check` for every step of every path from a free record.
fn every_step(mut check: impl FnMut(Account, Step, Event, Account)) {
    let mut seen = BTreeSet::new();
    let mut next = vec![(Phase::Free, Account::default())];
    while let Some((from, account)) = next.pop() {
        if !seen.insert((phase_number(from), account)) {
            continue;
        }
        for event in EVENTS {
            if let Some(to) = from.after(event) {
                let step = Step { from, to };
                let then = account.after(step, event);
                check(account, step, event, then);
                next.push((to, then));
            }
        }
    }
    assert_eq!(seen.iter().map(|(phase, _)| phase).collect::<BTreeSet<_>>().len(), Phase::ALL.len());
}

#[test]
fn slots_and_offers_are_given_back_once() {
    every_step(|_, step, event, then| {
        assert_eq!(then.slots, i32::from(step.to.has_slot()), "{step:?} by {event:?}");
        assert_eq!(then.offers, i32::from(step.to.is_offered()), "{step:?} by {event:?}");
    });
}

#[test]
fn bytes_go_by_ring_only_with_a_slot_and_never_after_demotion_without_a_new_offer() {
    every_step(|before, step, event, _| {
        if step.to.is_attached() && !step.from.is_attached() {
            assert!(matches!(step.from, Phase::Assigned { .. }) && event == Event::Enter, "{step:?} by {event:?}");
            assert_eq!(before.slots, 1);
        }
        let is_demoted = |phase| matches!(phase, Phase::Demoted { .. });
        assert!(
            !is_demoted(step.from) || is_demoted(step.to) || matches!(step.to, Phase::Kernel { .. } | Phase::Closed)
        );
    });
}

/// `Keep` holds until the record is another connection's: no stretch may begin, and no further offer is made.
#[test]
fn who_is_on_the_kernel_for_good_stays_there() {
    let mut kept: Vec<Phase> = Phase::ALL.into_iter().filter_map(|phase| phase.after(Event::Keep)).collect();
    let mut seen = Vec::new();
    while let Some(phase) = kept.pop() {
        if seen.contains(&phase) || phase == Phase::Free {
            continue;
        }
        assert!(!phase.permits_rings() && !phase.may_be_offered(), "{phase:?}");
        seen.push(phase);
        // No caller offers a connection that may not be offered.
        let events = EVENTS.into_iter().filter(|event| !matches!(event, Event::Offer { .. }));
        kept.extend(events.filter_map(|event| phase.after(event)));
    }
    assert!(seen.contains(&Phase::Returning { for_good: true }) && seen.contains(&Phase::Demoted { for_good: true }));
    for phase in Phase::ALL {
        let has_a_way = phase.permits_rings() || phase.may_be_offered();
        let can_come_back = matches!(phase, Phase::Returning { for_good: false } | Phase::Demoted { for_good: false });
        assert!(
            !(has_a_way || can_come_back) || phase.after(Event::Keep).is_some(),
            "{phase:?} cannot be kept on the kernel"
        );
    }
}

/// A stack that lets go keeps the connection for now; whoever keeps it for good, before, meanwhile or afterwards, prevails.
#[test]
fn who_is_kept_for_good_is_not_renewed() {
    const WAY: [Event; 3] = [Event::KeepForNow, Event::Demote, Event::Renew];
    let walk = |events: &[Event]| events.iter().fold(Phase::Ready, |phase, event| phase.after(*event).unwrap_or(phase));
    assert!(walk(&WAY).may_be_offered());
    for at in 0..=WAY.len() {
        let mut events = WAY.to_vec();
        events.insert(at, Event::Keep);
        assert!(!walk(&events).may_be_offered(), "{events:?}");
    }
}

/// A connection that ended by a violation comes back to no ring, and no call succeeds through one.
#[test]
fn broken_is_left_by_its_end_only() {
    let ways: BTreeSet<usize> =
        EVENTS.into_iter().filter_map(|event| Phase::Broken.after(event)).map(phase_number).collect();
    assert_eq!(ways, BTreeSet::from([phase_number(Phase::Demoted { for_good: true }), phase_number(Phase::Closed)]));
}

#[test]
fn whatever_happens_a_connection_can_be_closed_and_its_record_used_again() {
    for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Free) {
        let closed = phase.after(Event::Close).unwrap_or(phase);
        assert_eq!(closed, Phase::Closed);
        assert_eq!(closed.after(Event::Free), Some(Phase::Free));
    }
}

#[test]
fn a_late_answer_does_not_meet_the_next_connection() {
    let cell = Cell::default();
    let open = |cell: &Cell| {
        cell.go(Event::Open).expect("free");
        cell.go(Event::Offer { passive: true }).expect("open");
        cell.generation()
    };
    let first = open(&cell);
    assert!(cell.go(Event::Close).expect("open").withdraws());
    cell.go(Event::Free).expect("closed");
    let second = open(&cell);
    assert_ne!(first, second);
    assert_eq!(cell.go_in(first, Event::Assign), None);
    assert!(cell.go_in(second, Event::Assign).is_some());
    assert_eq!(cell.now(), (second, Phase::Assigned { for_good: false }));
}
