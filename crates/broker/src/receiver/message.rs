//! What the main thread and a receiver thread say to each other.

use crate::counted::Counted;
use crate::matching::Ticket;
use crate::memory::Hole;
use crate::netns::Namespace;
use crate::proof::Identity;
use crate::wire::Sender;
use rustix::fd::OwnedFd;
use sidestep_abi::Reason;
use sidestep_abi::msg::Msg;
use std::sync::Arc;

/// An offer that waits, as far as it can be proved.
#[derive(Clone, Debug)]
pub struct Claim {
    pub ticket: Ticket,
    pub identity: Identity,
    /// Where its socket is.
    pub namespace: Arc<Namespace>,
}

/// Where an eventfd is to ring, and who is to have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ringing {
    /// The member whose doorbell it is.
    pub owner: u64,
    pub place: usize,
    pub link: u32,
    /// Of the peer that is to ring.
    pub side: usize,
}

/// From the main thread.
#[derive(Debug)]
pub enum Command {
    /// Read from this connection.
    Admit { id: u64, socket: Arc<Counted> },
    /// Read from it, or do not for the time being.
    Listen { id: u64, listen: bool },
    /// Forget it, and close all that came from it.
    Dismiss { id: u64 },
    /// Answered with [`Event::Ringer`].
    Ringer(Ringing),
    /// What that side of the link rings with is of no use any more, and leaves the doorbells if it is to be taken out of them.
    /// Answered with [`Event::Unrung`].
    Unring { link: u32, side: usize, takes_out: bool },
    /// Are these alive, and is the offered socket still what it was? Answered with [`Event::Proved`].
    Prove { ticket: Ticket, socket: InHand, against: Vec<Claim> },
    /// The offered socket is needed no more.
    LetGo(InHand),
    /// Which of these are gone? Answered with [`Event::Rechecked`].
    Recheck(Vec<Claim>),
    /// Answered with [`Event::Answer`], when all before it has been done.
    Answer { id: u64, number: u64 },
    /// Answered with [`Event::Punched`].
    Punch(Hole),
    /// Given back by the main thread.
    Close(Arc<Counted>),
    /// What the members here rang with, and what has left the doorbells of others.
    CloseUnrung(Vec<Arc<Counted>>),
    /// Turned away: it counts for nobody.
    TurnAway(OwnedFd),
    /// Was not looked at any more.
    Discard(Event),
}

/// A socket that a receiver holds, by a number of its own: a member may use the number of its offer again as soon as that is
/// answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InHand(pub u64);

/// What came with an offer.
#[derive(Debug)]
pub enum Offered {
    /// A connected TCP socket, in the receiver's hands until it is told to let go.
    Socket(Identity, Arc<Namespace>, InHand),
    /// Such a socket, for which the domain has no descriptor left.
    NoRoom(Identity),
    Refuse(Reason),
    /// Against the protocol.
    Violation,
}

/// What is known of a socket that was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Alive,
    Gone,
    /// The kernel did not say.
    Unknown,
}

/// From a receiver.
#[derive(Debug)]
pub enum Event {
    /// A record that is about no descriptor.
    Record {
        id: u64,
        msg: Msg,
    },
    Garbage {
        id: u64,
        kind: u32,
        version: u32,
    },
    /// Nothing more will come.
    End {
        id: u64,
    },
    Offer {
        id: u64,
        msg: Msg,
        sender: Option<Sender>,
        what: Offered,
    },
    /// `own`: rings there, for the main thread; None: it is no doorbell. One for which there is no room is not told of.
    Doorbell {
        id: u64,
        place: usize,
        own: Option<Arc<Counted>>,
    },
    Ringer(Ringing, Option<Arc<Counted>>),
    Answer {
        id: u64,
        number: u64,
    },
    /// `ringers`: for the receiver of that side to close.
    Unrung {
        link: u32,
        side: usize,
        ringers: Vec<Arc<Counted>>,
    },
    /// `unchanged`: the offered socket is what it was.
    Proved {
        ticket: Ticket,
        socket: InHand,
        unchanged: bool,
        standings: Vec<(Ticket, Liveness)>,
    },
    /// These are gone.
    Rechecked(Vec<Ticket>),
    Punched {
        link: u32,
        slot: usize,
    },
    /// Nothing is left here.
    Idle,
}
