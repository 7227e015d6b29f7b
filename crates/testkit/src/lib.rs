//! For tests: network namespaces and cgroups (all tests create them here), a node with pods that is made of them, and locks that a
//! program holds in the kernel ([`held`]).
//!
//! [`Testbed`] is that node: network namespaces on one bridge, without a route outside, a cgroup and a BPF file system.
//!
//! ```text
//!   node namespace      bridge 10.244.0.1/16, fd00:244::1/64
//!      |      |      |
//!    pod    pod    pod     10.244.0.2, .3, ...   fd00:244::2, ::3, ...
//! ```
//!
//! Other code creates or enters namespaces itself for a reason: crates/lab builds environments at run time, and must report
//! failures; crates/broker enters a peer's namespace to query the kernel there; tests/bench enters namespaces that the lab gives
//! it; tests/posix tests that a program with the library can call unshare(2).
//!
//! A test that cannot have them fails: nothing here skips. Only one testbed exists at a time, since the whole process moves into
//! its cgroup.

#![deny(unsafe_code)]

mod cgroup;
pub mod greeter;
pub mod hairpin;
pub mod held;
#[cfg(feature = "istio-rules")]
pub mod istio_rules;
mod namespace;
pub mod program;
pub mod rerun;
#[cfg(feature = "tables")]
pub mod tables;

pub use cgroup::{Cgroup, Nested};
pub use namespace::{Namespace, enter, enter_new, run_in};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A node with pods.
pub struct Testbed {
    /// The node's own network namespace.
    pub node: Namespace,
    /// The cgroup that this process is in.
    pub cgroup: Cgroup,
    bpffs: PathBuf,
    name: String,
    pods: u8,
    _turn: MutexGuard<'static, ()>,
}

/// A pod: a namespace with an address of each family.
pub struct Pod {
    /// The pod's network namespace.
    pub namespace: Namespace,
    /// Its IPv4 address.
    pub v4: IpAddr,
    /// Its IPv6 address.
    pub v6: IpAddr,
}

impl Default for Testbed {
    fn default() -> Testbed {
        Testbed::new()
    }
}

impl Testbed {
    /// A node without pods. Needs root.
    pub fn new() -> Testbed {
        // A test that panicked has cleaned up, too, so a poisoned lock is fine.
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let name = unused_name();
        let node = Namespace::new(&format!("{name}-node"));
        node.ip("link add br0 type bridge");
        node.ip("addr add 10.244.0.1/16 dev br0");
        node.ip("-6 addr add fd00:244::1/64 dev br0 nodad");
        node.ip("link set br0 up");
        let bpffs = std::env::temp_dir().join(format!("{name}-bpf"));
        std::fs::create_dir(&bpffs).expect("a directory for the BPF file system");
        mount("bpf", &bpffs, "bpf", MountFlags::empty(), None).expect("mount a BPF file system (needs root)");
        let cgroup = Cgroup::new(&name);
        cgroup.enter();
        Testbed { node, cgroup, bpffs, name, pods: 1, _turn: turn }
    }

    /// Adds a pod, which reaches the node and the other pods.
    pub fn pod(&mut self) -> Pod {
        self.pods += 1;
        let number = self.pods;
        let namespace = Namespace::new(&format!("{}-{number}", self.name));
        let outside = format!("p{number}");
        self.node.ip(&format!("link add {outside} type veth peer name eth0 netns {}", namespace.name()));
        self.node.ip(&format!("link set {outside} master br0 up"));
        namespace.ip(&format!("addr add 10.244.0.{number}/16 dev eth0"));
        namespace.ip(&format!("-6 addr add fd00:244::{number:x}/64 dev eth0 nodad"));
        namespace.ip("link set eth0 up");
        let v6 = Ipv6Addr::new(0xfd00, 0x244, 0, 0, 0, 0, 0, number.into());
        Pod { namespace, v4: Ipv4Addr::new(10, 244, 0, number).into(), v6: v6.into() }
    }

    /// The testbed's own BPF file system.
    pub fn bpffs(&self) -> &Path {
        &self.bpffs
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.cgroup.leave();
        let _ = unmount(&self.bpffs, UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&self.bpffs);
    }
}

/// A name that no other test has.
pub(crate) fn unused_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("st{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Runs a command, which must succeed.
pub(crate) fn must(program: &str, words: &[&str]) {
    let done = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {}: {} (needs root)", words.join(" "), said.trim());
}
