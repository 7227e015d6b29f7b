//! The broker of Sidestep.
//!
//! The broker pairs the two ends of a local TCP connection, makes the memory that they share, and wakes one end when the other
//! dies. It is never in the data path. It trusts nothing that a member says or writes: everything that it must know about a
//! socket comes from the socket itself.
//!
//! ```text
//! server    the main thread: listeners, timers, signals       wire      one record with its descriptor
//!    |                                                        outbox    records that wait for a slow member
//! broker    members, offers, links, holds                     proof     what a socket proves
//!    |    \                                                   matching  which two sockets are one connection
//! link      receiver  threads for calls that a member may     diag      what the kernel knows of other processes' sockets
//!    |      block, one for each trust domain                  netns     network namespaces: where addresses are proof
//! raw       the only unsafe code: memory, system calls        domain    trust domains, which share limits and a thread
//!                                                             quota     how much of the broker a domain may take
//!                                                             room      how much of a member its peers may take
//! config    the TOML file       users  who may share memory   counted  descriptors that count for a domain
//! subordinates  users that are one domain
//! operator  the socket for status, detach and attach          memory   the memory of a link, as a file
//! client    the other end, for the command line               inherited  the members' socket from a service manager
//! ```
#![deny(unsafe_code)]

pub mod addr;
pub mod broker;
pub mod cgroup;
pub mod client;
pub mod closing;
pub mod config;
mod counted;
pub mod diag;
pub mod domain;
pub mod host_cgroups;
pub mod inherited;
mod link;
pub mod listen;
pub mod matching;
mod memory;
mod memory_limit;
pub mod netns;
pub mod operator;
pub mod outbox;
mod parking;
mod private;
pub mod proof;
mod quota;
mod raw;
mod receiver;
pub mod reload;
mod rights;
mod room;
pub mod server;
pub mod settings;
pub mod status;
pub mod subordinates;
pub mod trust;
pub mod users;
pub mod wire;
