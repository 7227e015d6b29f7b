//! Load tests with reliable verdicts: variants of a set-up, measured alternately, and compared with confidence intervals.
//!
//! A *scenario* names processes, variants and a load. For each *cell* (a choice of values for its axes) every *round* has one
//! *trial* of each variant, in random order. Variants are compared by the ratios of their trials in the same round.
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
