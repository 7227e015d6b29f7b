//! Every way to send or receive bytes, each with its name.

pub mod aio;
pub mod receiving;
pub mod sending;

use crate::end::{Recv, Send};

/// The way of this name; panics if there is none.
pub fn send_way(name: &str) -> Send {
    let way = sending::ALL.iter().find(|w| w.0 == name);
    way.unwrap_or_else(|| panic!("no way to send is called {name}")).1
}

/// The way of this name; panics if there is none.
pub fn recv_way(name: &str) -> Recv {
    let way = receiving::ALL.iter().find(|w| w.0 == name);
    way.unwrap_or_else(|| panic!("no way to receive is called {name}")).1
}
