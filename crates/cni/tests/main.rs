//! All integration tests of this crate, linked once.

mod chain;
mod common;
mod install;
mod plugin;
