//! One agent for each directory of pins, and only an agent's own files are removed.

use crate::agent::{Node, VIP, at, dial, server};
use crate::yaml;
use sidestep_agent_api::{Caller, Protocol, Question, Verdict, ask};
use sidestep_ebpf::services;
use sidestep_mesh::plane::DataPlane;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

/// A second agent in the node with this socket and these pins, which reads the first one's directory.
fn second(node: &Node, socket: &Path, pins: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-agent"));
    command.arg("--socket").arg(socket).arg("--pins").arg(pins).arg("--cgroup").arg(node.testbed.cgroup.path());
    command.args(["--metrics", "off", "--node-name", "node", "--config"]).arg(node.services());
    command
}

fn detach(socket: &Path, pins: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-agent"));
    command.arg("--detach").arg("--socket").arg(socket).arg("--pins").arg(pins).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

struct Second {
    agent: Child,
    socket: PathBuf,
    pins: PathBuf,
}

impl Second {
    /// With pins of its own.
    fn start(node: &mut Node) -> Second {
        let (socket, pins) = (node.directory.path().join("second.sock"), node.testbed.bpffs().join("second"));
        let mut command = second(node, &socket, &pins);
        let agent = node.testbed.node.run(|| command.spawn().unwrap());
        let second = Second { agent, socket, pins };
        node.wait(|_| ask(&second.socket, &Question::Status).is_ok());
        second
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        let _ = services::remove(&self.pins);
    }
}

fn node_with_web() -> (Node, sidestep_testkit::Pod, sidestep_testkit::Pod, crate::agent::Server) {
    let mut node = Node::with_agent();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let server = server(&pod);
    node.web([&pod]);
    node.wait(|_| client.namespace.run(|| dial(at(VIP, 80))).is_ok());
    (node, client, pod, server)
}

#[test]
fn another_socket_does_not_make_it_another_agent() {
    let (node, client, _pod, _server) = node_with_web();
    let other = node.directory.path().join("other.sock");
    let pid = node.status().unwrap().pid;
    for output in [second(&node, &other, &node.pins()).output().unwrap(), detach(&other, &node.pins())] {
        let said = said(&output);
        assert!(!output.status.success() && said.contains("an agent runs already with the pins"), "{said}");
        assert!(said.contains(&format!("(process {pid})")) && said.contains("end it first (SIGTERM)"), "{said}");
        assert!(client.namespace.run(|| dial(at(VIP, 80))).is_ok() && node.check().is_well());
    }
}

#[test]
fn an_agent_with_other_pins_is_left_alone() {
    let (mut node, _client, _pod, _server) = node_with_web();
    let mut second = Second::start(&mut node);
    // It answers, but the pins to be removed are not its own.
    let output = detach(&second.socket, &node.pins());
    assert!(!output.status.success() && said(&output).contains("it has other pins"), "{output:?}");
    // No agent uses these pins, and an agent that answers keeps its socket.
    assert!(detach(&second.socket, &node.testbed.bpffs().join("third")).status.success());
    assert!(ask(&second.socket, &Question::Status).is_ok() && node.check().is_well());
    assert!(detach(&second.socket, &second.pins).status.success());
    assert!(second.agent.wait().unwrap().success());
    assert!(!second.socket.exists() && node.check().is_well());
}

#[test]
fn a_file_in_the_place_of_the_socket_stays() {
    let node = Node::new();
    let file = node.directory.path().join("precious");
    std::fs::write(&file, "text").unwrap();
    for output in [second(&node, &file, &node.pins()).output().unwrap(), detach(&file, &node.pins())] {
        assert!(!output.status.success() && said(&output).contains("exists and is not a socket"), "{output:?}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
    }
}

/// While the source of a new agent is away, it reports what the kernel's tables do.
#[test]
fn before_the_source_is_read_the_earlier_agents_work_is_told() {
    let (mut node, client, _pod, _server) = node_with_web();
    node.kill();
    let nowhere = node.kubeconfig(1); // a port without a server
    node.spawn(&["--kubeconfig", nowhere.to_str().unwrap()]);
    node.wait(|node| node.status().is_ok_and(|status| !status.source.troubles.is_empty()));
    assert!(client.namespace.run(|| dial(at(VIP, 80))).is_ok());
    let status = node.status().unwrap();
    assert!(status.attached && !status.source.listed);
    let from = Caller::Cgroup(node.testbed.cgroup.path().into());
    let found = node.explain(Question::Explain { from, protocol: Protocol::Tcp, to: at(VIP, 80) });
    assert!(found.verdict == Verdict::Translated && found.backends.len() == 1, "{found:?}");
    assert!(format!("{:?}", found.steps).contains("not read yet"), "{found:?}");
    let check = node.check();
    assert!(check.differences.is_empty() && !check.is_well(), "{check:?}");
    assert!(check.troubles.iter().any(|trouble| trouble.what.contains("source not read yet")), "{check:?}");
}

/// An agent was killed after it had written that a backend is gone, and before it handled the sockets.
#[test]
fn what_went_before_it_started_is_reclaimed() {
    let mut node = Node::with_agent();
    let (client, pod) = (node.testbed.pod(), node.testbed.pod());
    let dns = |pods: &[std::net::IpAddr]| {
        let service = yaml::service("dns", VIP, 53, "").replace("{port: 53}", "{port: 53, protocol: UDP}");
        service + &yaml::slice("dns", pods, 8080).replace("{port: 8080}", "{port: 8080, protocol: UDP}")
    };
    node.file("dns.yaml", &dns(&[pod.v4]));
    node.wait(|node| node.show("dns").is_ok_and(|dns| dns.ports.first().is_some_and(|port| port.backend_count == 1)));
    let socket = client.namespace.run(|| UdpSocket::bind("0.0.0.0:0").inspect(|s| s.connect(at(VIP, 53)).unwrap()));
    let socket = socket.unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    node.kill();
    let mut tables = services::tables(&node.pins()).unwrap().unwrap();
    let members = tables.existing().unwrap().members;
    tables.remove_members(&members.into_iter().collect::<Vec<_>>()).unwrap();
    node.file("dns.yaml", &dns(&[]));
    node.start();
    node.wait(|_| socket.recv(&mut [0; 8]).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionAborted));
}

/// In IPVS mode kube-proxy adds every Service's address to an interface of the node.
#[test]
fn addresses_of_services_are_not_the_nodes() {
    let mut node = Node::new();
    for (name, address) in [("kube-ipvs0", "10.96.0.10"), ("nodelocaldns", "10.96.0.53"), ("own", "10.9.0.1")] {
        node.testbed.node.ip(&format!("link add {name} type bridge"));
        node.testbed.node.ip(&format!("addr add {address}/32 dev {name}"));
    }
    node.start();
    let known = |node: &Node| node.status().unwrap().node_addresses;
    node.wait(|node| known(node).contains(&"10.9.0.1".to_string()));
    assert!(known(&node).iter().all(|address| !address.starts_with("10.96.")), "{:?}", known(&node));
}
