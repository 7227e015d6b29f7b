//! Well-known programs in pods, which use sockets in their own ways.

mod dns;
mod lookup;
mod redis;
mod runtimes;
mod web;
