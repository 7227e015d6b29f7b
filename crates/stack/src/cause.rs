//! Why the stack does not carry a connection, or no longer does.

use crate::subject::Declined;
use sidestep_abi::Reason;
use sidestep_tcp::Back;

/// Why a connection goes back to the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The fast path does not go on.
    #[error("{}", .0.meaning())]
    Segment(Back),
    /// A packet that the fast path does not read: it has IP options, is a fragment, or is an ICMP error about the connection.
    #[error("a packet of it is not plain TCP: {0}")]
    Packet(&'static str),
    /// The program needs the socket.
    #[error("the program needs the kernel's socket")]
    Wanted,
    /// The program no longer uses the rings, as after a detach.
    #[error("the program has left the rings")]
    LeftRings,
    /// The program has closed the connection, or has ended.
    #[error("the program has left the connection")]
    Left,
    /// The program wrote into shared memory what no correct program writes.
    #[error("the program has violated the protocol: {0:?}")]
    Violation(sidestep_conn::PeerViolation),
    /// The program has not entered the rings in time.
    #[error("the program has not used the rings in time")]
    Slow,
    /// Packets may still be on their way to the socket.
    #[error("the kernel has not said in time that no packet is on its way to the socket: it is busy")]
    Busy,
    /// The kernel does not give the connection away.
    #[error("the kernel keeps the connection")]
    Take(#[source] sidestep_repair::TakeError),
    /// The kernel's queues could not be emptied.
    #[error("the kernel keeps what it has sent")]
    Empty(#[source] sidestep_repair::GiveBackError),
    /// The state that the kernel tells fits no fast path.
    #[error("the connection does not fit the fast path")]
    Resume(#[source] sidestep_tcp::ResumeError),
    /// The kernel has promised a window that is larger than the ring.
    #[error("the window of {window} bytes is larger than the ring of {ring}: use a larger --ring-size")]
    Window {
        /// Bytes that the peer may send.
        window: u32,
        /// Bytes of the ring.
        ring: usize,
    },
    /// The kernel has more bytes to send than a record holds.
    #[error("{queued} bytes are in the kernel's send queue")]
    Queue {
        /// Sent or not, and not acknowledged.
        queued: usize,
    },
    /// The device or its table fails.
    #[error("the device fails")]
    Device(#[from] sidestep_device::Error),
    /// The connection has changed since it was last carried.
    #[error("it cannot be carried again")]
    Declined(#[from] Declined),
    /// The kernel carries bulk better.
    #[error("its messages are long")]
    Bulk,
    /// Nothing has come or gone for a while.
    #[error("it is idle: the kernel watches over it")]
    Idle,
    /// Another connection has the same addresses and ports.
    #[error("another connection, in another network namespace, has the same addresses and ports")]
    Twice,
    /// Its first segment does not fit: in another network namespace a connection with the same addresses and ports may get it.
    #[error("its first segment does not fit: it may be another connection's")]
    Stranger,
    /// What the frames' headers say may not be right any more.
    #[error("its route, neighbour or device has changed")]
    Path,
    /// The stack ends.
    #[error("the stack ends")]
    Ending,
}

impl Cause {
    /// For `sidestep status`.
    pub fn reason(&self) -> Reason {
        match self {
            Cause::Segment(Back::Sack | Back::Gap | Back::DuplicateAcks | Back::Timeout) => Reason::Loss,
            Cause::Segment(Back::ZeroWindow | Back::SmallWindow) | Cause::Window { .. } => Reason::Window,
            Cause::Segment(_) | Cause::Packet(_) => Reason::Irregular,
            Cause::Wanted | Cause::LeftRings => Reason::SocketNeeded,
            Cause::Bulk => Reason::Bulk,
            Cause::Idle => Reason::Idle,
            Cause::Left => Reason::PeerClosing,
            Cause::Violation(_) => Reason::BrokenPeer,
            Cause::Slow | Cause::Busy => Reason::NotEntered,
            Cause::Take(_) | Cause::Empty(_) | Cause::Resume(_) | Cause::Twice | Cause::Queue { .. } => {
                Reason::KernelOnly
            }
            Cause::Declined(why) => why.reason(),
            Cause::Device(_) | Cause::Path | Cause::Stranger => Reason::OtherDevice,
            Cause::Ending => Reason::StackEnded,
        }
    }

    /// Whether the connection may be carried again later.
    pub fn passes(&self) -> bool {
        match self {
            Cause::Segment(why) => !matches!(why, Back::Fin | Back::Reset | Back::Syn),
            Cause::Packet(_)
            | Cause::Wanted
            | Cause::LeftRings
            | Cause::Bulk
            | Cause::Idle
            | Cause::Slow
            | Cause::Busy
            | Cause::Path
            | Cause::Stranger
            | Cause::Take(_)
            | Cause::Empty(_)
            | Cause::Queue { .. }
            | Cause::Device(_) => true,
            Cause::Left
            | Cause::Violation(_)
            | Cause::Resume(_)
            | Cause::Window { .. }
            | Cause::Declined(_)
            | Cause::Twice
            | Cause::Ending => false,
        }
    }
}
