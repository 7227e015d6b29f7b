//! Sockets of one node that write into each other's queues.

mod basics;
mod world;
