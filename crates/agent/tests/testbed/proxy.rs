//! `--replace-kube-proxy`: a client outside of the node, agents that die and follow each other, and what the agent refuses.

use crate::agent::{Node, VIP, at};
use crate::yaml;
use sidestep_testkit::{Namespace, Pod};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

const NODE_ADDRESS: &str = "192.0.2.1";
const PATIENCE: Duration = Duration::from_secs(30);

/// A namespace that reaches the node by a device of its own.
fn outside(node: &Node) -> Namespace {
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
    assert!(!node.pins().join("services/external").exists());
    assert!(rules(&node).is_empty());
}

fn rules(node: &Node) -> String {
    let listed = node.testbed.node.run(|| Command::new("nft").args(["list", "ruleset"]).output().unwrap());
    String::from_utf8_lossy(&listed.stdout).into_owned()
}

#[test]
fn the_agent_does_not_start_beside_the_rules_of_kube_proxy() {
    for (rules, named) in [
        ("add table ip kube-proxy", "nftables' table kube-proxy"),
        ("add table ip nat; add chain ip nat KUBE-SERVICES", "iptables' chain KUBE-SERVICES"),
    ] {
        let mut node = Node::new();
        let done = node.testbed.node.run(|| Command::new("nft").arg(rules).status().unwrap());
        assert!(done.success());
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
