//! The fast path of TCP: an established, well-behaved connection that was taken from the kernel in mid-stream.
//!
//! It knows data in order, acknowledgements, windows and timestamps. Whatever is irregular goes back to the kernel, under a
//! reason ([`Back`]). There is no clock and no I/O here: frames, times and positions come in as values, and frames go out as
//! values.
//!
//! ```text
//! frame -> Segment::parse -> Connection::receive -> Arrival::commit (1. copy, 2. publish) -> tell the program
//!                                                        |
//! program's positions, time -> Connection::next -> Departure::commit (3. publish) -> Outgoing::write -> frame
//! ```
//!
//! A worker that runs this can be killed at any instruction: the two rings and [`Saved`] are enough to go on, or to give the
//! connection back. So nothing leaves, and nothing is told to the program, before [`Memory`] holds it. The types leave no other
//! order: a frame can be written from [`Outgoing`] only, and only a commit makes one.
//!
//! A segment that is discarded or returned has not changed anything that is saved.
//!
//! The caller of a connection:
//!
//! 1. takes [`Saved`] from the kernel, or from the record of an earlier worker, and calls [`Connection::resume`];
//! 2. gives it all frames that have arrived before it looks at the time, and tells the program what each commit returns;
//! 3. asks [`Connection::next`] until nothing is due, with a free frame at hand for each segment;
//! 4. waits for frames, for the program, and for [`Connection::deadline`];
//! 5. at a [`Back`], gives the connection back from record and rings, and then the frame that is the cause. If that tells a loss, it
//!    sends [`Connection::missing`] first.
//!
//! It decides by itself that a connection is idle, carries bulk, or must go back for a reason that no segment shows.
#![forbid(unsafe_code)]

mod acceptable;
mod ack;
mod back;
mod congestion;
mod flight;
mod receive;
mod saved;
mod send;
mod seq;
mod state;
mod timer;
mod tuple;
mod window;
mod wire;

pub use back::Back;
pub use receive::{Arrival, Arrived, Discarded, Verdict};
pub use saved::{Agreed, Impossible, Progress, Saved};
pub use send::{Departure, Outgoing, Payload, Positions};
pub use seq::Seq;
pub use state::{Connection, Memory, ResumeError};
pub use tuple::Tuple;
pub use wire::about::about;
pub use wire::frame::{Fields, Headers, Link, MixedFamilies, WriteError};
pub use wire::options::{Options, Timestamps};
pub use wire::parse::{Checksums, Flags, FrameError, Segment, complete_checksum};
pub use wire::split::split;
