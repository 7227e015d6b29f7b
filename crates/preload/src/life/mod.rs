//! Beginning and end of a connection, and what happens to its numbers in between.

mod adopt;
pub mod begin;
mod end;
pub mod numbers;
pub mod shutdown;
