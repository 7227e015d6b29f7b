//! Running programs on the kernel and with Sidestep, and comparing.

pub mod compare;
pub mod modes;
pub mod open;
pub mod options;
pub mod rules;
pub mod run;
pub mod shrink;
pub mod truth;
pub mod worlds;
