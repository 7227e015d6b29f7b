//! Beginning and end of a connection, and the changes of its descriptors in between.

pub mod adopt;
pub mod begin;
mod end;
pub mod hasty;
pub mod numbers;
pub mod shutdown;
