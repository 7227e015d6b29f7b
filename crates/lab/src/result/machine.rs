//! The machine of a run, and the programs.

use serde::{Deserialize, Serialize};

/// What a reader must know to compare figures with those of another machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its release, such as 6.12.1.
    pub kernel: String,
    /// The model's name; on ARM the numbers of implementer and part.
    pub cpu: String,
    /// Logical processors, from /proc/cpuinfo.
    pub cores: usize,
    /// In bytes.
    pub memory: u64,
    /// `kvm`, or the CPU's name for it; None: bare metal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// The frequency governor of the first processor, such as `performance`. None: it has none, as in most virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The kernel's, such as `tsc`: a slow one makes every measurement of time expensive.
    pub clocksource: String,
    /// `PRETTY_NAME` of /etc/os-release.
    pub distribution: String,
}

/// A program that was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Of the file that was executed.
    pub path: String,
    /// The first line of its version output; None: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}
