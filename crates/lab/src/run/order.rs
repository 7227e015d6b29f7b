//! What outside tells inside: one line of JSON. After it the pipe says when to stop.

use crate::scenario::Scenario;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub scenario: Scenario,
    /// The file as it was read.
    pub text: String,
    pub command: Vec<String>,
    pub seed: u64,
    /// Each variant is sampled once more after the measurement.
    pub profile: bool,
    /// Where the result goes.
    pub out: PathBuf,
    /// An empty file system, and a cgroup: both are there.
    pub dir: PathBuf,
    pub cgroup: Option<PathBuf>,
    /// Several users, capture, splice and agents can be had.
    pub root: bool,
}

/// After the order: drop this trial, and write what there is.
pub const STOP: &str = "stop";
/// The first argument of inside.
pub const INSIDE: &str = "inside";
