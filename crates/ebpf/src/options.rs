//! Options for installing the Service programs.

use std::path::PathBuf;

/// Options for installing the Service programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory of a BPF file system.
    pub pins: PathBuf,
    /// A cgroup v2 directory: the programs serve the processes in it and below it.
    pub cgroup: PathBuf,
    /// Cookie of the network namespace of the node's own processes.
    pub node_netns: u64,
    /// Connections are counted for each pair of pods and each Service ([`crate::watch`]).
    pub watch: bool,
}
