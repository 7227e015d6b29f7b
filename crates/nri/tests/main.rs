//! All integration tests of this crate, linked once.

mod plugin;
mod store;
mod support;
