//! Where the CPU time of a trial went, by samples.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// One trial of a variant, taken after the measurement. Sampling costs time, so its latencies do not count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// One of [`Run::variants`](super::Run::variants).
    pub variant: String,
    /// By the scenario's names; `load` is the tool.
    pub processes: IndexMap<String, ProcessProfile>,
}

/// Counts of samples. Those in none of the three parts were in code whose memory was gone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessProfile {
    /// All of them; each stands for the same share of CPU time.
    pub samples: u64,
    /// In the program's own file, or in code that it has generated.
    pub own: u64,
    /// In libraries, by file name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub libraries: IndexMap<String, u64>,
    /// In the kernel, whoever called it.
    pub kernel: u64,
    /// Of those in the kernel: the ones in TCP's system calls, by name, with everything that these call.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub calls: IndexMap<String, u64>,
}

impl Profile {
    /// Of all processes together.
    pub fn samples(&self) -> u64 {
        self.processes.values().map(|each| each.samples).sum()
    }
}
