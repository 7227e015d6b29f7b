//! With whom pods may talk.

mod changes;
mod cost;
mod datagrams;
mod matrix;
pub mod probe;
mod random;
mod rules;
pub mod world;
