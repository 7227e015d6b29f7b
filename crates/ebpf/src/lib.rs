//! Loads, fills, attaches and removes the programs of the kernel half.
//!
//! Everything lives in pins below one directory of a BPF file system, and goes on working when nobody runs:
//!
//! ```text
//! /sys/fs/bpf/sidestep/services/maps-2/frontends, slots, ...     the tables; `2` is the version of their layout
//!                               links/connect4, ...              the attachments; a new agent exchanges their programs
//! ```
//!
//! [`services::install`] and [`splice::install`] are transactions: tables are made or found again, filled, and only then
//! are programs attached, all of them or none. [`services::remove`] and [`splice::remove`] take every trace away.

pub mod admission;
pub mod bypass;
pub mod capture;
mod closing;
pub mod error;
pub mod events;
mod grace;
pub mod layout;
pub mod links;
pub mod netns;
mod options;
pub mod packets;
pub mod pinned;
pub mod pins;
pub mod plane;
pub mod policy;
pub mod probe;
mod proc_net;
pub mod reclaim;
mod service_pins;
pub mod services;
pub mod shared;
pub mod splice;
pub mod stale;
pub mod table;
pub mod walk;
pub mod watch;
