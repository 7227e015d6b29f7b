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

mod carried;
mod cause;
mod control;
pub mod error;
mod frames;
mod grace;
mod link;
mod memory;
mod program;
mod stage;
mod subject;
mod timers;
pub mod wait;
pub mod worker;
