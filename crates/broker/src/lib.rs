//! The broker of Sidestep.
//!
//! It pairs the two ends of a local TCP connection, makes the memory they share, and wakes the one when the
//! other dies. It is never in the data path, and it trusts nothing that a member says or writes: what it needs
//! to know of a socket it reads from the socket itself.
//!
//! ```text
//! server   one epoll loop: sockets, timers, signals         wire     one record with its descriptor
//!    |                                                      outbox   records that wait for a slow member
//! broker   members, offers, links, holds                    proof    what a socket says of itself
//!    |                                                      matching which two sockets are one connection
//! link     slots of one shared segment                      config   the TOML file
//! raw      the only unsafe code: memory, two system calls   client   the other end, for the command line
//! ```
#![deny(unsafe_code)]

pub mod addr;
pub mod broker;
pub mod client;
pub mod config;
pub mod link;
pub mod listen;
pub mod matching;
pub mod outbox;
pub mod proof;
mod raw;
pub mod server;
pub mod settings;
pub mod status;
pub mod users;
pub mod wire;
