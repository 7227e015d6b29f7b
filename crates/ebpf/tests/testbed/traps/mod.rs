//! Calls that a translation at the socket could get wrong; one file for each kind.

mod again;
mod calls;
mod fast_open;
mod fixed_ports;
mod kernel;
mod mapped;
pub mod message;
mod passed;
pub mod rings;
