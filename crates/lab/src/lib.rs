//! Load tests whose verdicts can be believed: variants of a set-up, measured in turn, and compared with confidence.
//!
//! A *scenario* names processes, variants and a load. For each *cell* (a choice of values for its axes) every *round* holds
//! one *trial* of each variant, in random order. What is compared is the ratio of two variants' trials of one round.
// Not all of it is documented yet.
#![allow(missing_docs)]
#![forbid(unsafe_code)]

mod cgroup;
pub mod compare;
mod context;
mod environment;
pub mod error;
pub mod load;
pub mod meter;
mod profile;
pub mod report;
pub mod result;
pub mod run;
pub mod scenario;
pub mod stats;
