//! Pods are captured as the documents say.

use crate::agent::{Node, median};
use crate::yaml;
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Greeter, INBOUND, OUTBOUND, PROXY, ROOT, Seen, greeted};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn of(pod: &Pod, port: u16) -> SocketAddr {
    SocketAddr::new(pod.v4, port)
}

/// The listener that a program reaches.
fn met(from: &Pod, to: &Pod) -> io::Result<Seen> {
    greeted(from, ROOT, of(to, 8080))
}

#[test]
fn pods_are_captured_as_the_files_say_within_100_ms() {
    let mut node = Node::with_agent();
    let (pod, other) = (node.routed(), node.routed());
    let (_proxy, _program) = (Greeter::proxy(&pod), Greeter::program(&other, 8080));
    assert_eq!(met(&pod, &other).unwrap().listener, 8080);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..7 {
        let begun = Instant::now();
        node.captured("a", &pod);
        node.wait(|_| met(&pod, &other).is_ok_and(|seen| seen.listener == OUTBOUND));
        times[0].push(begun.elapsed());
        let begun = Instant::now();
        node.file("a.yaml", &yaml::annotated("a", pod.namespace.name(), "excludeOutboundPorts", "8080"));
        node.wait(|_| met(&pod, &other).is_ok_and(|seen| seen.listener == 8080));
        times[1].push(begun.elapsed());
        let begun = Instant::now();
        std::fs::remove_file(node.services().join("a.yaml")).unwrap();
        node.wait(|_| greeted(&other, ROOT, of(&pod, 9999)).is_err());
        times[2].push(begun.elapsed());
    }
    let medians = times.map(|each| median(&each));
    println!(
        "captured after {:.1?}, with other rules after {:.1?}, not any more after {:.1?}",
        medians[0], medians[1], medians[2]
    );
    assert!(medians.iter().all(|time| *time < Duration::from_millis(100)), "{medians:?}");
    assert!(node.capture("a").is_none() && node.check().is_well());
}

#[test]
fn both_directions_go_through_the_proxy_which_knows_what_was_dialled() {
    let mut node = Node::with_agent();
    let (pod, other) = (node.routed(), node.routed());
    let (_proxy, _programs) = (Greeter::proxy(&pod), [Greeter::program(&pod, 8080), Greeter::program(&other, 8080)]);
    node.captured("a", &pod);
    node.wait(|node| node.is_captured("a"));
    let seen = met(&pod, &other).unwrap();
    assert_eq!((seen.listener, seen.original, seen.peer.ip()), (OUTBOUND, Some(of(&other, 8080)), pod.v4));
    let seen = met(&other, &pod).unwrap();
    assert_eq!((seen.listener, seen.original, seen.peer.ip()), (INBOUND, Some(of(&pod, 8080)), other.v4));
    assert_eq!(greeted(&pod, PROXY, of(&other, 8080)).unwrap().listener, 8080, "the proxy's own way");
    let capture = node.capture("a").unwrap();
    assert_eq!((capture.outbound_listeners, capture.inbound_listeners, capture.troubles), (2, 2, vec![]));
    assert_eq!((capture.outbound_port, capture.inbound_port), (OUTBOUND, INBOUND));
    let check = node.check();
    assert!(check.is_well() && check.captures == 1, "{check:?}");
}

#[test]
fn a_bad_file_disturbs_no_captured_pod() {
    let mut node = Node::with_agent();
    let (pod, other) = (node.routed(), node.routed());
    let (_proxy, _program) = (Greeter::proxy(&pod), Greeter::program(&other, 8080));
    node.captured("a", &pod);
    node.wait(|node| node.is_captured("a"));
    let bad = yaml::capture("a", pod.namespace.name(), "  proxy: {uid: root}\n");
    node.file("a.yaml", &bad);
    node.wait(|node| !node.check().troubles.is_empty());
    let trouble = node.check().troubles.remove(0);
    assert!(trouble.place.ends_with("/a.yaml"), "{trouble:?}");
    assert!(trouble.what.contains("spec.proxy.uid: \"root\" where numbers between commas"), "{trouble:?}");
    assert_eq!(met(&pod, &other).unwrap().listener, OUTBOUND);
    // Also with an agent that has never seen the valid file.
    node.kill();
    node.start();
    assert_eq!(met(&pod, &other).unwrap().listener, OUTBOUND);
    node.captured("a", &pod);
    node.wait(|node| node.check().is_well());
    assert_eq!(met(&pod, &other).unwrap().listener, OUTBOUND);
}

#[test]
fn of_two_files_for_one_namespace_the_first_counts_and_both_are_named() {
    let mut node = Node::with_agent();
    let (pod, other) = (node.routed(), node.routed());
    let (_proxy, _program) = (Greeter::proxy(&pod), Greeter::program(&other, 8080));
    let excluding = |name: &str| yaml::annotated(name, pod.namespace.name(), "excludeOutboundPorts", "8080");
    let of_path = |name: &str| yaml::capture(name, &pod.namespace.path().display().to_string(), "");
    // The order of names decides, whether the namespace is given by name or by path.
    for (first, second) in [(("b", excluding("b")), ("a", of_path("a"))), (("a", of_path("a")), ("b", excluding("b")))]
    {
        for (name, text) in [&first, &second] {
            node.file(&format!("{name}.yaml"), text);
            node.wait(|node| node.capture(name).is_some_and(|capture| capture.cookie.is_some()));
        }
        node.wait(|node| node.is_captured("a") && !node.is_captured("b"));
        assert_eq!(met(&pod, &other).unwrap().listener, OUTBOUND);
        let trouble = |name: &str| node.capture(name).unwrap().troubles.join("; ");
        assert!(
            trouble("a").contains("Capture default/b names the same namespace: this file counts"),
            "{}",
            trouble("a")
        );
        assert!(trouble("b").contains("Capture default/a is for the same namespace"), "{}", trouble("b"));
        assert_eq!(node.check().problems.len(), 2);
        // The second document takes over, and meanwhile every connection is captured.
        std::fs::remove_file(node.services().join("a.yaml")).unwrap();
        node.wait(|node| node.is_captured("b") && node.check().is_well());
        assert_eq!(met(&pod, &other).unwrap().listener, 8080);
        assert_eq!(greeted(&other, ROOT, of(&pod, 9999)).unwrap().listener, INBOUND);
        std::fs::remove_file(node.services().join("b.yaml")).unwrap();
        node.wait(|node| node.captures().captures.is_empty());
    }
}

/// Lists of ports and of addresses: the last element counts, too.
#[test]
fn lists_may_be_long() {
    let mut node = Node::with_agent();
    let (pod, other) = (node.routed(), node.routed());
    let (_proxy, _program) = (Greeter::proxy(&pod), Greeter::program(&other, 8080));
    let all = |texts: &mut dyn Iterator<Item = String>| texts.collect::<Vec<_>>().join(",");
    let ports = all(&mut (20_000..21_000).map(|port| port.to_string()));
    let ranges = all(&mut (0..1000).map(|n| format!("192.168.{}.{}/32", n / 250, n % 250)));
    let lists = [
        ("excludeOutboundPorts", ports, "8080".to_string()),
        ("excludeOutboundIPRanges", ranges, format!("{}/32", other.v4)),
    ];
    for (annotation, list, last) in lists {
        node.file("a.yaml", &yaml::annotated("a", pod.namespace.name(), annotation, &list));
        node.wait(|node| node.is_captured("a") && met(&pod, &other).is_ok_and(|seen| seen.listener == OUTBOUND));
        node.file("a.yaml", &yaml::annotated("a", pod.namespace.name(), annotation, &format!("{list},{last}")));
        node.wait(|_| met(&pod, &other).is_ok_and(|seen| seen.listener == 8080));
        assert!(node.check().is_well());
    }
}

#[test]
fn what_a_file_says_of_its_place_is_compared_with_what_is_there() {
    let mut node = Node::with_agent();
    let (pod, other) = (node.routed(), node.routed());
    let (_proxy, _program) = (Greeter::proxy(&pod), Greeter::program(&other, 8080));
    let file = |more: &str| yaml::capture("a", pod.namespace.name(), more);
    let trouble = |node: &Node| node.capture("a").map(|capture| capture.troubles.join("; ")).unwrap_or_default();
    // These are another pod's addresses. The pod is captured all the same; otherwise its connections would bypass the proxy.
    node.file("a.yaml", &file("  addresses: [10.9.9.9]\n"));
    node.wait(|node| node.is_captured("a"));
    assert!(
        trouble(&node).contains("spec.addresses: the namespace has not 10.9.9.9, but 10.244.0.2"),
        "{}",
        trouble(&node)
    );
    assert_eq!(met(&pod, &other).unwrap().listener, OUTBOUND);
    pod.namespace.ip("addr add 10.9.9.9/32 dev eth0");
    node.wait(|node| trouble(node).is_empty());
    // A cgroup outside of the one to which programs are attached.
    let outside = node.testbed.cgroup.path().parent().unwrap().join("elsewhere");
    node.file("a.yaml", &file(&format!("  cgroup: {}\n", outside.display())));
    node.wait(|node| trouble(node).contains("start the agent with a --cgroup that contains both"));
    assert_eq!(met(&pod, &other).unwrap().listener, OUTBOUND, "what was captured stays so");
    for inside in ["kubepods/pod-1".into(), node.testbed.cgroup.path().join("pod-1").display().to_string()] {
        node.file("a.yaml", &file(&format!("  cgroup: {inside}\n")));
        node.wait(|node| trouble(node).is_empty());
    }
    // The node's own namespace is no pod's.
    node.file("b.yaml", &yaml::capture("b", node.testbed.node.name(), ""));
    node.wait(|node| node.capture("b").is_some_and(|b| b.troubles.join("").contains("is the node's own namespace")));
    assert!(!node.is_captured("b"));
}
