//! All integration tests of this crate, linked once.

mod bugreport;
mod commands;
mod common;
mod doctor;
mod run;
