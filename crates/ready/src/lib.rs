//! The order of events. The kernel keeps what is ready in an epoll set in one list: what arrives goes to its end, what has
//! been reported and is still ready (level-triggered) goes to its end again. Of an upgraded connection the kernel does not
//! see the arrivals: a second list ([`List`]) has them. Here both are made one.
//!
//! ```text
//! news of rings, by the time of their arrival ----> List ---+
//!                                                           +---> Merge ---> events of one wait (Ready)
//! epoll_wait(2): the kernel's own list -----------> Entry --+
//! ```
//!
//! Among rings the order is that of arrival, always. Between ring and kernel a doorbell tells: it stands in the kernel's
//! list where it was rung ([`Entry::Bell`]).
#![no_std]

mod list;
mod merge;
mod order;
mod pace;
mod ready;

pub use list::{GROUPS, List, Node, Nodes};
pub use pace::Pace;
pub use ready::{Asked, Entry, Looked, Ready, Set, Wait};
