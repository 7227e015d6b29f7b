//! All integration tests of this crate, linked once.

mod cluster;
mod idle;
mod process;
