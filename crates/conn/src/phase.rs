//! The life of a connection at one end, on its way from the kernel into a ring and back: one table of transitions.
//!
//! ```text
//!                     Offer              Assign            Enter
//!   Free --Open--> Kernel <-----> Offered -----> Assigned -----> Attached
//!                     ^    Lose                     |               | Demote
//!                     +-----------------------------+ Unfit         v
//!                     +------------------------------------------ Demoted
//!                                     Release
//! ```
//!
//! `Close` leads from all of them to `Closed`, `Free` from there back to the beginning.

use sidestep_abi::sync::{AtomicU64, Ordering};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No connection.
    Free,
    /// The kernel carries; calls are passed through and counted.
    Kernel,
    /// The same, and the broker has been asked for a ring. Passive: only for the sake of the other end.
    Offered { passive: bool },
    /// The broker has given a slot. As soon as no thread is inside a native call, `Attached`.
    Assigned,
    /// Each direction is carried by what its two ends have agreed upon, byte by byte.
    Attached,
    /// The kernel carries for good. The slot is still ours.
    Demoted,
    /// Closed here; threads still inside give up.
    Closed,
}

/// What happens to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Open,
    Offer {
        passive: bool,
    },
    /// A passive offer is passive no more.
    Press,
    /// The offer is refused, or the broker that had it is gone.
    Lose,
    Assign,
    Enter,
    /// Not fit for a ring after all.
    Unfit,
    Demote,
    /// The slot is given back while others hold the connection.
    Release,
    Close,
    Free,
}

/// A transition, and what the end owes the broker for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub from: Phase,
    pub to: Phase,
}

impl Phase {
    pub const ALL: [Phase; 8] = [
        Phase::Free,
        Phase::Kernel,
        Phase::Offered { passive: false },
        Phase::Offered { passive: true },
        Phase::Assigned,
        Phase::Attached,
        Phase::Demoted,
        Phase::Closed,
    ];

    /// The table of transitions. None: the event cannot happen in this phase, or changes nothing.
    pub const fn after(self, event: Event) -> Option<Phase> {
        Some(match (self, event) {
            (Phase::Free, Event::Open) => Phase::Kernel,
            (Phase::Kernel, Event::Offer { passive }) => Phase::Offered { passive },
            (Phase::Offered { passive: true }, Event::Press) => Phase::Offered { passive: false },
            (Phase::Offered { .. }, Event::Lose) => Phase::Kernel,
            (Phase::Offered { .. }, Event::Assign) => Phase::Assigned,
            (Phase::Assigned, Event::Enter) => Phase::Attached,
            (Phase::Assigned, Event::Unfit) => Phase::Kernel,
            (Phase::Attached, Event::Demote) => Phase::Demoted,
            (Phase::Demoted, Event::Release) => Phase::Kernel,
            (Phase::Closed | Phase::Free, Event::Close) => return None,
            (_, Event::Close) => Phase::Closed,
            (Phase::Closed, Event::Free) => Phase::Free,
            _ => return None,
        })
    }

    /// Whether a slot is ours.
    pub const fn has_slot(self) -> bool {
        matches!(self, Phase::Assigned | Phase::Attached | Phase::Demoted)
    }

    /// Whether the broker has an offer of ours.
    pub const fn is_offered(self) -> bool {
        matches!(self, Phase::Offered { .. })
    }

    const fn bits(self) -> u32 {
        match self {
            Phase::Free => 0,
            Phase::Kernel => 1,
            Phase::Offered { passive: false } => 2,
            Phase::Offered { passive: true } => 3,
            Phase::Assigned => 4,
            Phase::Attached => 5,
            Phase::Demoted => 6,
            Phase::Closed => 7,
        }
    }

    const fn from_bits(bits: u32) -> Phase {
        match bits {
            1 => Phase::Kernel,
            2 => Phase::Offered { passive: false },
            3 => Phase::Offered { passive: true },
            4 => Phase::Assigned,
            5 => Phase::Attached,
            6 => Phase::Demoted,
            7 => Phase::Closed,
            _ => Phase::Free,
        }
    }
}

impl Step {
    /// The slot that was ours is to be given back.
    pub const fn gives_slot_back(self) -> bool {
        self.from.has_slot() && !self.to.has_slot()
    }

    /// The broker has an offer of a connection that is none any more.
    pub const fn withdraws(self) -> bool {
        self.from.is_offered() && matches!(self.to, Phase::Closed)
    }
}

/// The phase of a connection's record, which several threads change at once. A record is used for one connection after the
/// other: its generation says for which.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// The generation in the upper half, the phase in the lower one. Zero is a free record.
    const fn word(generation: u32, phase: Phase) -> u64 {
        (generation as u64) << 32 | phase.bits() as u64
    }

    #[inline]
    pub fn phase(&self) -> Phase {
        Phase::from_bits(self.0.load(Ordering::SeqCst) as u32)
    }

    #[inline]
    pub fn generation(&self) -> u32 {
        (self.0.load(Ordering::Acquire) >> 32) as u32
    }

    /// Both, as of one moment.
    pub fn now(&self) -> (u32, Phase) {
        let word = self.0.load(Ordering::SeqCst);
        ((word >> 32) as u32, Phase::from_bits(word as u32))
    }

    /// Whether this is the phase, in one order with what other threads do.
    #[inline]
    pub fn is(&self, phase: Phase) -> bool {
        self.0.load(Ordering::SeqCst) as u32 == phase.bits()
    }

    /// The event happens, unless the table has no transition for it now.
    pub fn go(&self, event: Event) -> Option<Step> {
        self.go_if(event, |_| true)
    }

    /// The same, if the record is still that of the connection with this generation.
    pub fn go_in(&self, generation: u32, event: Event) -> Option<Step> {
        self.go_if(event, |now| now == generation)
    }

    fn go_if(&self, event: Event, is_it: impl Fn(u32) -> bool) -> Option<Step> {
        let mut word = self.0.load(Ordering::SeqCst);
        loop {
            let (generation, from) = ((word >> 32) as u32, Phase::from_bits(word as u32));
            let to = from.after(event).filter(|_| is_it(generation))?;
            // A free record's next connection is another one.
            let generation = if event == Event::Open { generation.wrapping_add(1) } else { generation };
            match self.0.compare_exchange(word, Cell::word(generation, to), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(Step { from, to }),
                Err(now) => word = now,
            }
        }
    }
}
