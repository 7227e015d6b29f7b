//! Programs of others in pods, each of which has a mind of its own about its sockets and their peers.

mod dns;
mod lookup;
mod redis;
mod runtimes;
mod web;
