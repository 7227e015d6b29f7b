//! The phases of a connection at one end, from the kernel into a ring and back: one table of transitions.
//!
//! ```text
//!                     Offer              Assign            Enter              Ready
//!   Free --Open--> Kernel <-----> Offered -----> Assigned -----> Attached ---------> Ready
//!                   ^  ^   Lose                     |                 | Keep           | Keep
//!                   |  +----------------------------+ Unfit           v                v
//!                   +-------------- Demoted <---------------------------- Returning <--+
//!                   Release, Renew            Demote
//! ```
//!
//! `Keep`: the kernel carries for good. An end without a slot remembers that (`for_good`); an end with a slot returns. `KeepForNow`: the
//! same until the next offer, and `Renew` in place of `Release`; `Keep` overrules it at any time. `Break`
//! leads from all phases with rings to `Broken`, `Close` from all to `Closed`, `Free` from there to the beginning.

use sidestep_abi::sync::{AtomicU64, Ordering};

/// A phase of a connection at one end.
#[allow(missing_docs)] // The fields are described with their variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No connection.
    Free,
    /// The kernel carries. Calls go to the kernel and are counted. `for_good`: no offer is made any more.
    Kernel { for_good: bool },
    /// As `Kernel`, and the broker has an offer. Passive: the offer is made only for the sake of the other end.
    Offered { passive: bool, for_good: bool },
    /// The broker has assigned a slot. `Attached` follows as soon as no thread is inside a native call.
    Assigned { for_good: bool },
    /// Each direction is carried as its two ends agree, byte by byte. The peer does not write into rings yet, since it cannot
    /// ring all our waiters.
    Attached,
    /// As `Attached`, and this end reads rings.
    Ready,
    /// Still attached, but on the way to the kernel: no stretch begins.
    Returning { for_good: bool },
    /// The peer has violated the protocol: calls fail. The slot is still ours.
    Broken,
    /// The kernel carries. The slot is still ours.
    Demoted { for_good: bool },
    /// Closed at this end. Threads that are still inside a call give up.
    Closed,
}

/// An event in the life of a connection.
#[allow(missing_docs)] // The fields are described with their variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// connect(2) or accept(2) has made the connection.
    Open,
    /// The end offers the connection to the broker. Passive: for the sake of the other end.
    Offer { passive: bool },
    /// The passive offer is passive no more.
    Press,
    /// The offer is refused, or the broker that had it is gone.
    Lose,
    /// The broker has assigned a slot.
    Assign,
    /// No thread is inside a native call any more: the end uses its slot.
    Enter,
    /// The peer can ring every waiter of this end.
    Ready,
    /// The kernel is to carry for good.
    Keep,
    /// The kernel is to carry until the next offer: the stack has let go of the connection.
    KeepForNow,
    /// The peer has violated the protocol.
    Break,
    /// The connection turned out to be unfit for a ring.
    Unfit,
    /// Both directions are the kernel's, and nothing of them is in a ring.
    Demote,
    /// The slot is given back while other processes hold the connection.
    Release,
    /// The slot is given back, and the connection may be offered again.
    Renew,
    /// close(2) of the last descriptor.
    Close,
    /// The last thread has left: the record can be used again.
    Free,
}

/// A transition. It also tells what the end must tell the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The phase before.
    pub from: Phase,
    /// The phase since.
    pub to: Phase,
}

impl Phase {
    /// In the order of their discriminants.
    pub const ALL: [Phase; 17] = [
        Phase::Free,
        Phase::Kernel { for_good: false },
        Phase::Kernel { for_good: true },
        Phase::Offered { passive: false, for_good: false },
        Phase::Offered { passive: true, for_good: false },
        Phase::Offered { passive: false, for_good: true },
        Phase::Offered { passive: true, for_good: true },
        Phase::Assigned { for_good: false },
        Phase::Assigned { for_good: true },
        Phase::Attached,
        Phase::Returning { for_good: false },
        Phase::Returning { for_good: true },
        Phase::Ready,
        Phase::Broken,
        Phase::Demoted { for_good: false },
        Phase::Demoted { for_good: true },
        Phase::Closed,
    ];

    /// The table of transitions. None: the event cannot happen in this phase, or changes nothing.
    pub const fn after(self, event: Event) -> Option<Phase> {
        use Phase::*;
        Some(match (self, event) {
            (Free, Event::Open) => Kernel { for_good: false },
            (Kernel { for_good }, Event::Offer { passive }) => Offered { passive, for_good },
            (Offered { passive: true, for_good }, Event::Press) => Offered { passive: false, for_good },
            (Offered { for_good, .. }, Event::Lose) => Kernel { for_good },
            (Offered { for_good, .. }, Event::Assign) => Assigned { for_good },
            (Assigned { for_good: false }, Event::Enter) => Attached,
            (Assigned { for_good: true }, Event::Enter) => Returning { for_good: true },
            (Assigned { for_good }, Event::Unfit) => Kernel { for_good },
            (Attached, Event::Ready) => Ready,
            (Kernel { for_good: false }, Event::Keep) => Kernel { for_good: true },
            (Offered { passive, for_good: false }, Event::Keep) => Offered { passive, for_good: true },
            (Assigned { for_good: false }, Event::Keep) => Assigned { for_good: true },
            (Attached | Ready | Returning { for_good: false }, Event::Keep) => Returning { for_good: true },
            (Attached | Ready, Event::KeepForNow) => Returning { for_good: false },
            (Attached | Ready | Returning { .. }, Event::Break) => Broken,
            (Returning { for_good: false }, Event::Demote) => Demoted { for_good: false },
            (Attached | Ready | Returning { .. } | Broken, Event::Demote) => Demoted { for_good: true },
            (Demoted { for_good: false }, Event::Keep) => Demoted { for_good: true },
            (Demoted { .. }, Event::Release) => Kernel { for_good: true },
            (Demoted { for_good: false }, Event::Renew) => Kernel { for_good: false },
            (Closed | Free, Event::Close) => return None,
            (_, Event::Close) => Closed,
            (Closed, Event::Free) => Free,
            _ => return None,
        })
    }

    /// Whether this end has a slot.
    pub const fn has_slot(self) -> bool {
        matches!(self, Phase::Assigned { .. } | Phase::Demoted { .. }) || self.is_attached()
    }

    /// Whether the broker has an offer of this end.
    pub const fn is_offered(self) -> bool {
        matches!(self, Phase::Offered { .. })
    }

    /// Whether calls go through the state machines of the two ends, and not to the kernel alone.
    pub const fn is_attached(self) -> bool {
        matches!(self, Phase::Attached | Phase::Ready | Phase::Returning { .. } | Phase::Broken)
    }

    /// Whether a stretch of ring may begin.
    pub const fn permits_rings(self) -> bool {
        matches!(self, Phase::Attached | Phase::Ready)
    }

    /// Whether an offer, or one that is not passive, could lead to a ring.
    pub const fn may_be_offered(self) -> bool {
        matches!(self, Phase::Kernel { for_good: false } | Phase::Offered { passive: true, for_good: false })
    }

    /// Whether the next call on the connection may take it a step further into the ring or back.
    pub const fn is_moving(self) -> bool {
        matches!(self, Phase::Assigned { .. } | Phase::Attached | Phase::Returning { .. })
    }

    const fn number(self) -> u32 {
        match self {
            Phase::Free => 0,
            Phase::Kernel { for_good } => 1 + for_good as u32,
            Phase::Offered { passive, for_good } => 3 + passive as u32 + 2 * for_good as u32,
            Phase::Assigned { for_good } => 7 + for_good as u32,
            Phase::Attached => 9,
            Phase::Returning { for_good } => 10 + for_good as u32,
            Phase::Ready => 12,
            Phase::Broken => 13,
            Phase::Demoted { for_good } => 14 + for_good as u32,
            Phase::Closed => 16,
        }
    }

    const fn from_number(number: u32) -> Phase {
        if (number as usize) < Phase::ALL.len() { Phase::ALL[number as usize] } else { Phase::Free }
    }
}

impl Step {
    /// Whether the slot must be given back.
    pub const fn gives_slot_back(self) -> bool {
        self.from.has_slot() && !self.to.has_slot()
    }

    /// Whether an offer must be withdrawn, because its connection has ended.
    pub const fn withdraws(self) -> bool {
        self.from.is_offered() && matches!(self.to, Phase::Closed)
    }
}

/// The phase of a record, which several threads change concurrently. A record is used for one connection after another; its
/// generation tells which.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// The generation in the upper half, the phase in the lower half. Zero: a free record.
    const fn word(generation: u32, phase: Phase) -> u64 {
        (generation as u64) << 32 | phase.number() as u64
    }

    /// The present phase. Sequentially consistent with the actions of other threads.
    #[inline]
    pub fn phase(&self) -> Phase {
        Phase::from_number(self.0.load(Ordering::SeqCst) as u32)
    }

    /// Which of the connections, one after another, the record is used for.
    #[inline]
    pub fn generation(&self) -> u32 {
        (self.0.load(Ordering::Acquire) >> 32) as u32
    }

    /// Generation and phase, read at one moment.
    pub fn now(&self) -> (u32, Phase) {
        let word = self.0.load(Ordering::SeqCst);
        ((word >> 32) as u32, Phase::from_number(word as u32))
    }

    /// Whether this is the phase. Sequentially consistent with the actions of other threads.
    #[inline]
    pub fn is(&self, phase: Phase) -> bool {
        self.0.load(Ordering::SeqCst) as u32 == phase.number()
    }

    /// Whether the connection is attached. Sequentially consistent with the actions of other threads.
    #[inline]
    pub fn is_attached(&self) -> bool {
        const ENDS: (u32, u32) = (Phase::Attached.number(), Phase::Broken.number());
        (ENDS.0..=ENDS.1).contains(&(self.0.load(Ordering::SeqCst) as u32))
    }

    /// Whether the next call on the connection may take it a step further into the ring or back.
    #[inline]
    pub fn is_moving(&self) -> bool {
        const ENDS: (u32, u32) =
            (Phase::Assigned { for_good: false }.number(), Phase::Returning { for_good: true }.number());
        (ENDS.0..=ENDS.1).contains(&(self.0.load(Ordering::Acquire) as u32))
    }

    /// Applies the event. None: the table has no transition for it now.
    pub fn go(&self, event: Event) -> Option<Step> {
        self.go_if(event, |_| true)
    }

    /// As [`go`](Self::go), if the record still has this generation.
    pub fn go_in(&self, generation: u32, event: Event) -> Option<Step> {
        self.go_if(event, |now| now == generation)
    }

    fn go_if(&self, event: Event, is_it: impl Fn(u32) -> bool) -> Option<Step> {
        let mut word = self.0.load(Ordering::SeqCst);
        loop {
            let (generation, from) = ((word >> 32) as u32, Phase::from_number(word as u32));
            let to = from.after(event).filter(|_| is_it(generation))?;
            // The next connection of a free record has a new generation.
            let generation = if event == Event::Open { generation.wrapping_add(1) } else { generation };
            match self.0.compare_exchange(word, Cell::word(generation, to), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(Step { from, to }),
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_number_and_ranges_hold_what_they_say() {
        for (number, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!((phase.number(), Phase::from_number(number as u32)), (number as u32, phase));
            let cell = Cell(AtomicU64::new(Cell::word(7, phase)));
            assert_eq!(cell.now(), (7, phase));
            assert_eq!(cell.is_attached(), phase.is_attached(), "{phase:?}");
            assert_eq!(cell.is_moving(), phase.is_moving(), "{phase:?}");
        }
    }
}
