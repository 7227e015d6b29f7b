//! The order that the process outside gives to the one inside: one line of JSON. Afterwards the pipe says when to stop.

use crate::scenario::Scenario;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub scenario: Scenario,
    /// The scenario's file, as read.
    pub text: String,
    pub command: Vec<String>,
    pub seed: u64,
    /// Sample each variant once more after the measurement.
    pub profile: bool,
    /// File for the result.
    pub out: PathBuf,
    /// An empty file system, and a cgroup; both exist already.
    pub dir: PathBuf,
    pub cgroup: Option<PathBuf>,
    /// Whether several users, capture, splice and agents are possible.
    pub root: bool,
}

/// Sent after the order: drop the present trial, and write what there is.
pub const STOP: &str = "stop";
/// The first argument of the process inside.
pub const INSIDE: &str = "inside";
