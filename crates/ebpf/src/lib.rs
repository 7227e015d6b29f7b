//! Loads, fills, attaches and removes the programs of the kernel half.
//!
//! Everything is pinned below one directory of a BPF file system, and works on when no process runs:
//!
//! ```text
//! /sys/fs/bpf/sidestep/services/maps-2/frontends, slots, ...     the tables; `2` is the version of their layout
//!                               links/connect4, ...              the attachments; a new agent exchanges their programs
//! ```
//!
//! [`services::install`] and [`splice::install`] are transactions: tables are created or found again and filled, and only then
//! are programs attached, either all or none. [`services::remove`] and [`splice::remove`] leave no trace.

pub mod admission;
pub mod bypass;
pub mod capture;
mod closing;
pub mod error;
pub mod events;
pub mod external;
mod grace;
pub mod isolated;
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
mod table_room;
pub mod walk;
pub mod watch;
