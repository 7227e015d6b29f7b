//! Where the CPU of a trial went, by samples.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// One trial of a variant, taken after the measurement. Sampling costs time, so its latencies are none of the result's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub variant: String,
    /// By the scenario's names; `load` is the tool.
    pub processes: IndexMap<String, ProcessProfile>,
}

/// Counts of samples. What is in none of the three parts was in code that nothing in memory could be told of any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessProfile {
    pub samples: u64,
    /// In the program's own file, or in code that it has made itself.
    pub own: u64,
    /// By name of the file.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub libraries: IndexMap<String, u64>,
    pub kernel: u64,
    /// Of those in the kernel: in the system calls of TCP that are named, with everything that these call.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub calls: IndexMap<String, u64>,
}

impl Profile {
    pub fn samples(&self) -> u64 {
        self.processes.values().map(|each| each.samples).sum()
    }
}
