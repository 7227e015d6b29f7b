//! What may be chosen when the Service programs are installed.

use std::path::PathBuf;

/// What may be chosen when the Service programs are installed.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory of a BPF file system.
    pub pins: PathBuf,
    /// A cgroup v2 directory: sockets of the processes in it, and below, are balanced.
    pub cgroup: PathBuf,
    /// Cookie of the network namespace in which the node's own processes are.
    pub node_netns: u64,
    /// Connections are counted for each pair of pods and each Service ([`crate::watch`]).
    pub watch: bool,
}
