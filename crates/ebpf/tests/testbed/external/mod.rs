//! Packets to Services that arrive at the node's devices: clients outside of the node.

mod datagrams;
mod flood;
mod invalid;
mod isolated;
mod lives;
mod refused;
mod streams;
mod vlan;
mod world;
