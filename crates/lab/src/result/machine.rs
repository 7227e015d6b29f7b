//! The machine of a run, and the programs.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub cpu: String,
    pub cores: usize,
    /// In bytes.
    pub memory: u64,
    /// `kvm`, or the CPU's name for it; None: bare metal.
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
    /// The first line of its version output; None: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}
