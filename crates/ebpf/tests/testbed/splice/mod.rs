//! Splicing: sockets of one node that write into each other's queues.

mod aliases;
mod basics;
mod eligible;
mod ends;
mod kernel;
mod limits;
mod many;
mod options;
mod programs;
mod stream;
mod switches;
mod world;
