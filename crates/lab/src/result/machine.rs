//! On what a run was done, and with which programs.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub cpu: String,
    pub cores: usize,
    /// Bytes.
    pub memory: u64,
    /// `kvm`, or what the CPU calls itself; None on bare metal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    pub clocksource: String,
    pub distribution: String,
}

/// A program that was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub path: String,
    /// The first line that it says of itself; None if it says none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}
