//! Pods stay captured however agents end.

use super::load::Load;
use crate::agent::Node;
use crate::yaml;
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Greeter, INBOUND, ROOT, greeted};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A captured pod, and another one.
fn node_with_pods() -> (Node, [Pod; 2], [Greeter; 3]) {
    let mut node = Node::with_agent();
    let pods = [node.routed(), node.routed()];
    let greeters = [Greeter::proxy(&pods[0]), Greeter::program(&pods[0], 8080), Greeter::program(&pods[1], 8080)];
    node.captured("a", &pods[0]);
    node.wait(|node| node.is_captured("a"));
    (node, pods, greeters)
}

#[test]
fn killed_and_exchanged_agents_cost_no_captured_connection() {
    let (mut node, pods, _greeters) = node_with_pods();
    let load = Load::start(&pods[0], &pods[1]);
    load.wait_for(50);
    for round in 0..4 {
        if round % 2 == 0 {
            node.kill()
        } else {
            assert!(node.stop().success())
        }
        load.wait_for(30);
        node.start();
        node.wait(|node| node.is_captured("a"));
        load.wait_for(30);
    }
    // Killed in the middle of the start.
    for _ in 0..4 {
        node.kill();
        let services = node.services();
        node.spawn(&["--config", services.to_str().unwrap()]);
        load.wait_for(15);
    }
    node.kill();
    node.start();
    node.wait(|node| node.is_captured("a") && node.check().is_well());
    load.wait_for(30);
    // The rules change under load.
    for port in 0..10 {
        node.file(
            "a.yaml",
            &yaml::annotated("a", pods[0].namespace.name(), "excludeOutboundPorts", &(7000 + port).to_string()),
        );
        load.wait_for(10);
    }
    let (failures, done) = load.stop();
    println!("{done} captured connections");
    assert!(failures.is_empty(), "{} of {done}: {:?}", failures.len(), failures.first());
    let a = node.capture("a").unwrap();
    assert_eq!((a.outbound_listeners, a.inbound_listeners), (2, 2), "each listener is there once");
}

/// What an earlier agent has captured and no document wants any more is removed only when all documents are known.
#[test]
fn what_went_while_no_agent_ran_is_removed_when_all_is_known() {
    let (mut node, pods, _greeters) = node_with_pods();
    let inbound = || greeted(&pods[1], ROOT, SocketAddr::new(pods[0].v4, 8080)).unwrap().listener;
    node.kill();
    std::fs::remove_file(node.services().join("a.yaml")).unwrap();
    // As long as a file cannot be read, it might be the missing document.
    node.file("bad.yaml", "kind: Nonsense");
    node.start();
    node.wait(|node| !node.check().is_well());
    assert_eq!(inbound(), INBOUND);
    assert!(has_passthrough(&pods[0]));
    std::fs::remove_file(node.services().join("bad.yaml")).unwrap();
    node.wait(|_| inbound() == 8080);
    node.wait(|_| !has_passthrough(&pods[0]));
    assert!(node.check().is_well());
}

/// Whether ::6, which captured pods get, is on its loopback.
fn has_passthrough(pod: &Pod) -> bool {
    let words = ["-6", "addr", "show", "dev", "lo"];
    let done = Command::new("ip").args(["-n", pod.namespace.name()]).args(words).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().contains("inet6 ::6/128")
}

fn id(kind: &str, pinned: &Path) -> Option<(String, String)> {
    let done = Command::new("/usr/sbin/bpftool").args(["-j", kind, "show", "pinned"]).arg(pinned).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let number = |name: &str| text.split(&format!("\"{name}\":")).nth(1)?.split([',', '}']).next().map(String::from);
    Some((number("id")?, number("prog_id").unwrap_or_default()))
}

/// Kind and id of each pinned program, map and link.
fn traces(directory: &Path) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    let mut left: Vec<PathBuf> = vec![directory.into()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Some((map, _)) = id("map", &path) {
            found.insert(("map", map));
        } else if let Some((link, program)) = id("link", &path) {
            found.extend([("link", link), ("prog", program)]);
        }
    }
    found
}

fn is_there((kind, id): &(&str, String)) -> bool {
    Command::new("/usr/sbin/bpftool").args([kind, "show", "id", id]).output().unwrap().status.success()
}

#[test]
fn detaching_leaves_nothing_of_captured_pods() {
    for kill in [false, true] {
        let (mut node, pods, _greeters) = node_with_pods();
        let made = traces(&node.pins());
        let count = |kind: &str| made.iter().filter(|(other, _)| *other == kind).count();
        let hooks = ["services/links", "services/packets/links"]
            .map(|links| std::fs::read_dir(node.pins().join(links)).unwrap().count());
        let hooks: usize = hooks.into_iter().sum();
        assert_eq!((count("link"), count("prog")), (hooks + 1, hooks + 1), "one for the pod besides: {made:?}");
        assert!(count("map") > 20 && made.iter().all(is_there), "{made:?}");
        assert!(has_passthrough(&pods[0]));
        // An address that somebody else has added stays.
        pods[1].namespace.ip("-6 addr add ::6/128 dev lo nodad");
        node.captured("b", &pods[1]);
        node.wait(|node| node.is_captured("b"));
        if kill {
            node.kill();
        }
        let done = node.command().arg("--detach").output().unwrap();
        assert!(done.status.success(), "{done:?}");
        if !kill {
            assert!(node.wait_for_end().success());
        }
        // The kernel frees programs and maps asynchronously, when nobody can be using them any more.
        let left = || made.iter().filter(|one| is_there(one)).collect::<Vec<_>>();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !left().is_empty() {
            assert!(Instant::now() < deadline, "{:?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!node.pins().exists());
        assert_eq!(pods.each_ref().map(has_passthrough), [false, true]);
        let direct = greeted(&pods[1], ROOT, SocketAddr::new(pods[0].v4, 8080)).unwrap();
        assert_eq!(direct.listener, 8080);
    }
}
