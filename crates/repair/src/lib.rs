//! Takes an established TCP connection out of the kernel, and gives it back on the same descriptor, by TCP_REPAIR.
//!
//! ```text
//!             take                          give_back
//!   kernel ---------> parked (ESTABLISHED, ----------> kernel
//!     ^               repair mode)   |
//!     |       undo          |        | abandon
//!     +---------------------+        +--------> closed, ECONNABORTED
//! ```
//!
//! Between the two somebody else carries the connection: by the sequence numbers, windows and options of [`State`], and the bytes
//! of [`Taken::unread`] and [`Taken::unacknowledged`]. This crate moves no packet; a parked socket drops all that reach it.
//!
//! # A process that is killed
//!
//! Another process that has the socket can go on, if the first one has noted in shared memory what it was about to do:
//!
//! | noted | done by the other process |
//! |---|---|
//! | before [`take_prepared`]: the [`Saved`] of [`prepare`] | [`undo`] |
//! | before anybody carries the connection: [`State`], and the bytes of both queues | [`give_back`] |
//! | before [`give_back_prepared`]: the [`State`] of that moment, what it is given, and the [`Buffers`] | [`give_back_again`] if [`is_parked`], else [`finish`] |
//!
//! # What the program may do meanwhile
//!
//! The program has the socket all the time, and may be hostile. Repair mode lets the kernel ignore conflicts of bind(2) and
//! listen(2) with other sockets (SK_FORCE_REUSE): a program could listen where another user does. So that is taken back in the very
//! next call, and is there again only for the calls of a give-back that close, bind and connect the socket. A program that gets in
//! between these calls is found out: a socket that has become a listener, or another connection (which repair mode makes without a
//! handshake), is closed.
//!
//! # What a give-back changes
//!
//! The open file is the same: its numbers in all processes, O_NONBLOCK, epoll registrations, cookie, filters, marks, and all
//! options that the kernel keeps or [`State::saved`] restores. Not restored, since the kernel does not let anybody:
//!
//! - cwnd, ssthresh, round-trip times and the retransmission timeout, which start anew; so do the counters of TCP_INFO;
//! - the peer's last timestamp: PAWS protects again as soon as a segment has brought one;
//! - segments that arrived out of order: the peer sends them again;
//! - TCP_SAVED_SYN, TCP_QUICKACK, a TCP_MAXSEG of the program (it has no effect on a connection), membership in a sockmap;
//! - IPV6_V6ONLY, which is on after bind(2) to an IPv6 address, and that the local port and address count as bound;
//! - a connection without window scaling is reported with scales of zero, which means the same;
//! - SO_RCVBUF and SO_SNDBUF lose their lowest bit if the buffers had to grow.

mod buffers;
mod examine;
mod give_back;
mod guard;
mod info;
mod intrusion;
mod kernel;
mod names;
mod options;
mod profile;
mod queues;
mod repair;
mod saved;
mod state;
mod take;

pub use buffers::Buffers;
pub use examine::{NotTaken, examine};
pub use give_back::{
    Contradiction, GiveBackError, Queues, abandon, empty, finish, give_back, give_back_again, give_back_prepared,
    is_parked, send_behind,
};
pub use kernel::CallError;
pub use names::Names;
pub use profile::profile;
pub use queues::queued_since;
pub use saved::{Keepalive, Saved};
pub use state::{Path, Profile, Scales, State, Taken, TimestampClock, Window};
pub use take::{TakeError, prepare, take, take_prepared, undo};
