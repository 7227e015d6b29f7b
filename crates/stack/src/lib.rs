//! The stack: carries established connections to other hosts in user space, behind the rings of programs.
//!
//! ```text
//! program == ring == Carried -- frames -- device
//!                      |
//!             take     |     give back
//! kernel <-------------+-------------> kernel
//! ```
//!
//! The broker shows the worker each offer without another end on this host. The worker has the connection's packets diverted,
//! waits until the program uses rings in both directions, and takes the connection from the kernel ([`sidestep_repair`]). From
//! then on the fast path ([`sidestep_tcp`]) carries it. Whatever the fast path does not know goes back to the kernel, on the
//! same descriptor.
//!
//! A program can keep a call on its socket waiting for as long as it likes. So such calls run on a thread of the program's trust
//! domain (`executors.rs`), in each process of the stack.
//!
//! # Its processes
//!
//! ```text
//! keeper, standby <─ starts, and passes the device and the ledger to ─> worker <──> broker, programs, device
//!    ^                                                                    │
//!    └────────── sockets, links (custody) ── records (ledger) ────────────┘
//! ```
//!
//! The worker does all of the above, and may be killed at any instruction. The keeper only waits. It has the descriptors of the
//! device, a copy of each connection's socket, and the memory in which the worker writes what it is about to do (`record.rs`).
//! When the worker has ended it gives each connection back (`handover.rs`), and starts another worker. The standby has the same,
//! and does that in place of a keeper that was killed, too.

mod calls;
mod carried;
mod cause;
pub mod choice;
mod control;
mod custody;
mod due;
pub mod error;
mod executors;
mod frames;
mod grace;
mod handover;
mod held;
pub mod keeper;
mod layout;
pub mod ledger;
mod link;
mod mapping;
mod memory;
mod pace;
pub mod passing;
pub mod process;
mod program;
pub mod readable;
mod record;
pub mod recovery;
mod restoration;
mod room;
mod stage;
pub mod standby;
mod subject;
mod timers;
pub mod wait;
pub mod worker;
