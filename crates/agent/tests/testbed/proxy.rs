//! `--replace-kube-proxy`: a client outside of the node, agents that die and follow each other, and what the agent refuses.

use crate::agent::{Node, VIP, at};
use crate::yaml;
use sidestep_agent_api::{Explanation, Protocol, Question, Verdict};
use sidestep_testkit::{Namespace, Pod};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

pub const NODE_ADDRESS: &str = "192.0.2.1";
const PATIENCE: Duration = Duration::from_secs(30);

/// A namespace that reaches the node by a device of its own.
pub fn outside(node: &Node) -> Namespace {
    let outside = Namespace::fresh();
    let host = &node.testbed.node;
    host.ip(&format!("link add ext0 type veth peer name eth0 netns {}", outside.name()));
    host.ip(&format!("addr add {NODE_ADDRESS}/24 dev ext0"));
    host.ip("link set ext0 up");
    outside.ip("addr add 192.0.2.2/24 dev eth0");
    outside.ip("link set eth0 up");
    outside.ip(&format!("route add default via {NODE_ADDRESS}"));
    host.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    outside
}

/// Returns what each client sends, until the test ends.
fn echo(pod: &Pod) {
    let listener = pod.namespace.run(|| TcpListener::bind("0.0.0.0:8080").unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
}

fn exchange(stream: &mut TcpStream, text: &[u8]) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(text).unwrap();
    let mut found = vec![0; text.len()];
    stream.read_exact(&mut found).unwrap();
    assert_eq!(found, text);
}

fn dial(to: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&to, PATIENCE)
}

fn start(node: &mut Node) {
    let services = node.services();
    node.start_with(&[
        "--config",
        services.to_str().unwrap(),
        "--replace-kube-proxy",
        "--cluster-cidr",
        "10.244.0.0/16",
    ]);
}

#[test]
fn a_connection_from_outside_outlives_agents_and_an_agent_without_the_option_ends_the_service() {
    let mut node = Node::new();
    let (client, pod) = (outside(&node), node.testbed.pod());
    pod.namespace.ip("route add default via 10.244.0.1");
    echo(&pod);
    let service = yaml::service("web", VIP, 80, "  externalIPs: [198.51.100.1]\n  type: NodePort\n");
    let service = service.replace("{port: 80}", "{port: 80, nodePort: 30080}");
    node.file("web.yaml", &(service + &yaml::slice("web", &[pod.v4], 8080)));
    start(&mut node);
    // The client's sockets are not those of the node: its thread is outside of the cgroup that is served.
    let from_outside = |node: &Node, to: SocketAddr| node.testbed.cgroup.outside(|| client.run(|| dial(to)));
    let mut lasting = from_outside(&node, at(NODE_ADDRESS, 30080)).unwrap();
    exchange(&mut lasting, b"at a NodePort");
    exchange(&mut from_outside(&node, at("198.51.100.1", 80)).unwrap(), b"at an external address");
    assert!(node.check().is_well(), "{:?}", node.check());

    node.kill();
    exchange(&mut lasting, b"without an agent");
    exchange(&mut from_outside(&node, at(NODE_ADDRESS, 30080)).unwrap(), b"a new one without an agent");
    start(&mut node);
    exchange(&mut lasting, b"with the next agent");

    node.stop();
    node.start();
    // Sockets are served first.
    node.wait(|node| !node.pins().join("services/external").exists() && rules(node).is_empty());
}

/// A command on the node.
fn run(node: &Node, command: &str) {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let done = node.testbed.node.run(|| command.args(words).status().unwrap());
    assert!(done.success(), "{command:?}");
}

/// Two proxies translate packets twice: who starts the other one later is told so.
#[test]
fn a_kube_proxy_that_comes_later_is_told() {
    let mut node = Node::new();
    start(&mut node);
    assert!(node.check().is_well(), "{:?}", node.check());
    // A name that only contains the chain's is none of kube-proxy's.
    run(&node, "xtables-legacy-multi iptables -t filter -N MY-KUBE-SERVICES");
    assert!(node.check().is_well(), "{:?}", node.check());
    run(&node, "xtables-legacy-multi iptables -t nat -N KUBE-SERVICES");
    let problems = node.check().problems;
    assert!(problems.len() == 1 && problems[0].contains("iptables-legacy's chain KUBE-SERVICES"), "{problems:?}");
}

#[test]
fn packets_are_explained() {
    let mut node = Node::new();
    let pod = node.testbed.pod();
    let rules = "  externalTrafficPolicy: Local\n  type: NodePort\n";
    let service = yaml::service("web", VIP, 80, rules).replace("{port: 80}", "{port: 80, nodePort: 30080}");
    node.file("web.yaml", &(service + &yaml::slice("web", &[pod.v4], 8080)));
    node.file("none.yaml", &yaml::service("none", "10.96.0.99", 80, ""));
    let _outside = outside(&node);
    start(&mut node);
    let explain = |from: &str, to: SocketAddr| {
        node.explain(Question::ExplainPacket { from: from.parse().unwrap(), protocol: Protocol::Tcp, to })
    };
    let outcomes = |explanation: &Explanation| -> String {
        explanation.steps.iter().map(|step| format!("{}: {}\n", step.rule, step.outcome)).collect()
    };
    for (from, to, verdict, backends, said) in [
        ("192.0.2.2", at(NODE_ADDRESS, 30080), Verdict::Dropped, 0, "none on this node"),
        ("10.244.7.7", at(NODE_ADDRESS, 30080), Verdict::Translated, 1, "the pod's own"),
        ("192.0.2.2", at(VIP, 80), Verdict::Translated, 1, "an address of the node"),
        ("192.0.2.2", at("10.96.0.99", 80), Verdict::Refused, 0, "port unreachable"),
        ("192.0.2.2", at(VIP, 81), Verdict::Untouched, 0, "no Service; of this address TCP 80 is default/web"),
    ] {
        let found = explain(from, to);
        assert_eq!((found.verdict, found.backends.len()), (verdict, backends), "{from} {to}: {found:?}");
        assert!(outcomes(&found).contains(said), "{from} {to}: {found:?}");
    }
}

fn rules(node: &Node) -> String {
    let listed = node.testbed.node.run(|| Command::new("nft").args(["list", "ruleset"]).output().unwrap());
    String::from_utf8_lossy(&listed.stdout).into_owned()
}

#[test]
fn the_agent_does_not_start_beside_the_rules_of_kube_proxy() {
    for (command, named) in [
        ("nft add table ip kube-proxy", "nftables' table kube-proxy"),
        ("nft add table ip nat; add chain ip nat KUBE-SERVICES", "iptables' chain KUBE-SERVICES"),
        ("xtables-legacy-multi iptables -t nat -N KUBE-SERVICES", "iptables-legacy's chain KUBE-SERVICES"),
        ("xtables-legacy-multi ip6tables -t filter -N KUBE-SERVICES", "iptables-legacy's chain KUBE-SERVICES"),
    ] {
        let mut node = Node::new();
        run(&node, command);
        let services = node.services();
        node.spawn(&["--config", services.to_str().unwrap(), "--replace-kube-proxy"]);
        assert!(!node.wait_for_end().success());
        assert!(
            node.log().contains(&format!("kube-proxy's rules are still here: {named}. Stop kube-proxy")),
            "{}",
            node.log()
        );
        assert!(!node.pins().join("services").exists());
    }
}
