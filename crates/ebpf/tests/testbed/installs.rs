//! All programs are attached together, whatever was attached before.

use crate::node::{Node, install};
use libbpf_rs::Link;
use libbpf_rs::query::{LinkTypeInfo, ProgInfoIter};
use sidestep_ebpf::services::{self, Options, is_attached};
use sidestep_error::chain;
use sidestep_mesh::address::{Address, Protocol};
use sidestep_testkit::Cgroup;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An empty cgroup below that of the testbed.
fn cgroup_below(node: &Node) -> Cgroup {
    node.testbed.cgroup.child("below")
}

fn bpftool(words: &[&str]) -> String {
    let done = Command::new("/usr/sbin/bpftool").args(words).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// Number of programs that are attached to it.
fn attached(cgroup: &Path) -> usize {
    bpftool(&["cgroup", "show", cgroup.to_str().unwrap()]).lines().count().saturating_sub(1)
}

fn links(options: &Options) -> PathBuf {
    options.pins.join("services/links")
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Number of programs for a cgroup.
pub const PROGRAMS: usize = 13;

/// A start of the agent, and a pod's, waits for the verifier. Functions that it follows on every path of their callers multiply.
#[test]
fn the_verifier_has_little_to_do() {
    const MOST: u32 = 30_000;
    let node = Node::new();
    let links = links(&node.options);
    let ids: BTreeSet<u32> =
        names(&links).iter().map(|name| Link::open(links.join(name)).unwrap().info().unwrap().prog_id).collect();
    let programs: Vec<_> = ProgInfoIter::default().filter(|program| ids.contains(&program.id)).collect();
    assert_eq!(programs.len(), PROGRAMS);
    for program in programs {
        let (name, steps) = (program.name.to_string_lossy(), program.verified_insns);
        assert!((1..MOST).contains(&steps), "{name}: {steps} instructions");
    }
}

#[test]
fn a_hook_that_somebody_else_holds_leaves_nothing_attached() {
    let node = Node::new();
    let below = cgroup_below(&node);
    let taken = Link::open(links(&node.options).join("recvmsg4")).unwrap().info().unwrap().prog_id.to_string();
    let cgroup = below.path().to_str().unwrap();
    bpftool(&["cgroup", "attach", cgroup, "cgroup_udp4_recvmsg", "id", &taken]);
    let options =
        Options { pins: node.testbed.bpffs().join("other"), cgroup: below.path().into(), ..node.options.clone() };
    let error = chain(&services::install(&options, |_| Ok(())).unwrap_err()).to_string();
    for word in ["attach recvmsg4", "os error 1", "bpftool cgroup show", "choose another --cgroup"] {
        assert!(error.contains(word), "{error}");
    }
    assert_eq!((attached(below.path()), is_attached(&options.pins, below.path())), (1, false));
    assert!(!options.pins.join("services/links-new").exists() && names(&links(&options)).is_empty());
    bpftool(&["cgroup", "detach", cgroup, "cgroup_udp4_recvmsg", "id", &taken]);
    services::install(&options, |_| Ok(())).unwrap();
    assert_eq!((attached(below.path()), is_attached(&options.pins, below.path())), (PROGRAMS, true));
    services::remove(&options.pins).unwrap();
}

#[test]
fn another_cgroup_gets_the_programs_and_the_old_one_loses_them() {
    let node = Node::new();
    let (below, above) = (cgroup_below(&node), node.testbed.cgroup.path());
    let options = Options { cgroup: below.path().into(), ..node.options.clone() };
    assert!(is_attached(&options.pins, above) && !is_attached(&options.pins, below.path()));
    install(&options);
    assert!(is_attached(&options.pins, below.path()) && !is_attached(&options.pins, above));
    assert_eq!((attached(above), attached(below.path())), (0, PROGRAMS));
    assert!(!options.pins.join("services/links-new").exists());
}

#[test]
fn a_cgroup_that_was_made_again_gets_the_programs_again() {
    let node = Node::new();
    let below = cgroup_below(&node);
    let options = Options { cgroup: below.path().into(), ..node.options.clone() };
    let is_severed = || {
        let info = Link::open(links(&options).join("connect4")).unwrap().info().unwrap().info;
        matches!(info, LinkTypeInfo::Cgroup(found) if found.cgroup_id == 0)
    };
    install(&options);
    drop(below);
    while !is_severed() {
        std::thread::sleep(Duration::from_millis(5)); // the kernel detaches asynchronously
    }
    let below = cgroup_below(&node);
    assert!(!is_attached(&options.pins, below.path()));
    install(&options);
    assert_eq!((is_attached(&options.pins, below.path()), attached(below.path())), (true, PROGRAMS));
}

/// As after an upgrade from a version with other programs.
#[test]
fn programs_that_come_and_go_are_attached_and_detached() {
    let node = Node::new();
    let links = links(&node.options);
    let all = names(&links);
    std::fs::remove_file(links.join("connect6")).unwrap();
    std::fs::rename(links.join("recvmsg4"), links.join("formerly")).unwrap();
    install(&node.options);
    assert_eq!(names(&links), all);
    assert_eq!(attached(node.testbed.cgroup.path()), PROGRAMS);
}

/// Half of the table's capacity, replaced by as many others.
#[test]
fn all_addresses_of_the_node_may_change_at_once() {
    let mut node = Node::new();
    let some = |first: u32| -> BTreeSet<Address> {
        (first..first + 10_000).map(|number| Address::from(std::net::IpAddr::from(Ipv4Addr::from(number)))).collect()
    };
    for first in [0x0a61_0000, 0x0a71_0000] {
        node.maps.set_node_addresses(&some(first), |_| true).unwrap();
        assert_eq!(node.maps.node_addresses().unwrap(), some(first));
    }
}

/// Without the pins alone, the kernel would detach some milliseconds later.
#[test]
fn nothing_is_translated_once_everything_is_removed() {
    let vip = SocketAddr::new("10.96.0.1".parse().unwrap(), 80);
    for _ in 0..3 {
        let mut node = Node::new();
        let pod = node.testbed.pod();
        node.service("web", Protocol::Tcp, "10.96.0.1", 80, [(pod.v4, 8080)]);
        let _listener = pod.namespace.run(|| TcpListener::bind(SocketAddr::new(pod.v4, 8080)).unwrap());
        let dial = || pod.namespace.run(|| TcpStream::connect_timeout(&vip, Duration::from_millis(100)));
        dial().unwrap();
        services::remove(&node.options.pins).unwrap();
        assert!(dial().is_err(), "the cluster IP still leads to the pod");
    }
}
