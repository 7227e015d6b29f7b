//! Packets to Services that arrive at the node's devices: clients outside of the node.

mod datagrams;
mod lives;
mod streams;
mod world;
