//! Messages between the main thread and a receiver thread.

use crate::counted::Counted;
use crate::matching::Ticket;
use crate::memory::Hole;
use crate::netns::Namespace;
use crate::proof::SocketFacts;
use crate::wire::Sender;
use rustix::fd::OwnedFd;
use sidestep_abi::Reason;
use sidestep_abi::msg::Msg;
use std::sync::Arc;

/// A waiting offer, with what is needed to look for its socket.
#[derive(Clone, Debug)]
pub struct Claim {
    pub ticket: Ticket,
    pub facts: SocketFacts,
    /// The namespace of its socket.
    pub namespace: Arc<Namespace>,
}

/// Which doorbell an eventfd is to ring, and which side of a link gets the eventfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ringing {
    /// The member that owns the doorbell.
    pub owner: u64,
    pub place: usize,
    pub link: u32,
    /// Side of the peer that is to ring.
    pub side: usize,
}

/// From the main thread.
#[derive(Debug)]
pub enum Command {
    /// Read from this connection.
    Admit { id: u64, socket: Arc<Counted> },
    /// Read from it, or stop reading for now.
    Listen { id: u64, listen: bool },
    /// Forget it, and close everything that came from it.
    Dismiss { id: u64 },
    /// Make an eventfd for this doorbell. Answered with [`Event::Ringer`].
    Ringer(Ringing),
    /// That side of the link rings no more. If `takes_out`, remove its eventfds from the doorbells. Answered with
    /// [`Event::Unrung`].
    Unring { link: u32, side: usize, takes_out: bool },
    /// Are these sockets alive, and is the offered one unchanged? Answered with [`Event::Proved`].
    Prove { ticket: Ticket, socket: InHand, against: Vec<Claim> },
    /// Let go of the offered socket.
    LetGo(InHand),
    /// Lend the offered socket to the main thread. Answered with [`Event::Lent`].
    Lend { ticket: Ticket, socket: InHand },
    /// Which of these sockets are gone? Answered with [`Event::Rechecked`].
    Recheck(Vec<Claim>),
    /// Send [`Event::Answer`] when all earlier commands have been executed.
    Answer { id: u64, number: u64 },
    /// Give this memory back to the system. Answered with [`Event::Punched`].
    Punch(Hole),
    /// Close a descriptor that the main thread has given back.
    Close(Arc<Counted>),
    /// Close eventfds with which this domain's members rang, and that are out of the doorbells.
    CloseUnrung(Vec<Arc<Counted>>),
    /// Close a connection that was turned away; it counts in no quota.
    TurnAway(OwnedFd),
    /// Drop an event that the main thread has not read.
    Discard(Event),
}

/// Number of a socket that a receiver holds. It is not the offer's number, which the member may use again as soon as the offer
/// is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InHand(pub u64);

/// The descriptor that came with an offer.
#[derive(Debug)]
pub enum Offered {
    /// A connected TCP socket, which the receiver holds until it has found another end alive, or [`Command::LetGo`].
    Socket(SocketFacts, Arc<Namespace>, InHand),
    /// A connected TCP socket for which the domain has no descriptor left.
    NoRoom(SocketFacts),
    Refuse(Reason),
    /// A violation of the protocol.
    Violation,
}

/// What is known of a waiting offer's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Alive,
    Gone,
    /// The kernel did not answer.
    Unknown,
}

/// From a receiver.
#[derive(Debug)]
pub enum Event {
    /// A record without a descriptor.
    Record {
        id: u64,
        msg: Msg,
    },
    Garbage {
        id: u64,
        kind: u32,
        version: u32,
    },
    /// The connection has ended.
    End {
        id: u64,
    },
    Offer {
        id: u64,
        msg: Msg,
        sender: Option<Sender>,
        what: Offered,
    },
    /// A new doorbell. `own`: the eventfd with which the main thread rings it. None: the descriptor is no doorbell. A doorbell
    /// for which there is no room is not reported.
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
    /// `ringers`: to be closed by the receiver of that side.
    Unrung {
        link: u32,
        side: usize,
        ringers: Vec<Arc<Counted>>,
    },
    /// `unchanged`: whether the offered socket is still what it was.
    Proved {
        ticket: Ticket,
        socket: InHand,
        unchanged: bool,
        standings: Vec<(Ticket, Liveness)>,
    },
    /// The socket of an offer, for the stack.
    Lent {
        ticket: Ticket,
        fd: Arc<Counted>,
    },
    /// The sockets of these offers are gone.
    Rechecked(Vec<Ticket>),
    Punched {
        link: u32,
        slot: usize,
    },
    /// The receiver has nothing left.
    Idle,
}
