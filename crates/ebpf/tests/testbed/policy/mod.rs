//! Policies.

mod captured;
mod changes;
mod cost;
mod datagrams;
mod example;
mod matrix;
pub mod probe;
mod random;
mod rights;
mod rules;
pub mod world;
