//! The costs of a trial, and other load in the meantime.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// What the meter counted from the beginning of a trial's load to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Length of the measurement.
    pub seconds: f64,
    /// By the scenario's names; `load` is the tool.
    pub processes: IndexMap<String, ProcessUsage>,
    /// Seconds of CPU of the whole machine.
    pub machine_cpu: f64,
    /// Of these, seconds in soft interrupts.
    pub softirq: f64,
    /// The most processors that all processes of the scenario used in any tenth of a second.
    pub highest_cpu: f64,
    /// Context switches of the whole machine.
    pub switches: u64,
    /// System calls of the whole machine; None: they cannot be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Seconds of CPU that the hypervisor gave to others.
    pub steal: f64,
    /// Seconds of CPU of processes that are not the scenario's; None: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<f64>,
}

/// Costs of a process of the scenario with its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Seconds of CPU in user space.
    pub user: f64,
    /// Seconds of CPU in the kernel.
    pub system: f64,
    /// Bytes of the process and its children in the middle of the trial; shared pages count proportionally.
    pub memory: u64,
}

impl ProcessUsage {
    /// Seconds of CPU in user space and in the kernel.
    pub fn cpu(&self) -> f64 {
        self.user + self.system
    }
}

/// Why a trial is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// CPU time that the hypervisor gave to others, as a part of the machine's whole capacity.
    pub steal: f64,
    /// CPU time of processes that are not the scenario's, as such a part.
    pub foreign: f64,
}

impl Usage {
    /// Seconds of CPU of all processes of the scenario.
    pub fn cpu(&self) -> f64 {
        self.processes.values().map(ProcessUsage::cpu).sum()
    }
}
