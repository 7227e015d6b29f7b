//! The calls that are intercepted.

mod exports;
mod jumps;
pub mod next;
pub mod symbols;
mod table;
