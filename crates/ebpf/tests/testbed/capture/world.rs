//! A node with a captured pod.

use crate::node::Node;
use crate::sockets::PATIENCE;
use ipnet::IpNet;
use sidestep_ebpf::capture::{Captures, pod_network};
use sidestep_ebpf::{netns, packets};
use sidestep_mesh::capture::rules::{InboundPorts, OwnerGroups, Ranges, Rules, WithoutProxy};
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Greeter, Owner, PROXY, Seen, as_owner};
pub use sidestep_testkit::greeter::{INBOUND, OUTBOUND, any};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

pub struct World {
    pub node: Node,
    pub captures: Captures,
}

impl World {
    pub fn new() -> World {
        World::on(Node::new())
    }

    pub fn on(node: Node) -> World {
        packets::install(&node.options).unwrap();
        let captures = Captures::open(&node.options.pins).unwrap();
        World { node, captures }
    }

    /// Adds a pod that can reach all others.
    pub fn pod(&mut self) -> Pod {
        let pod = self.node.testbed.pod();
        pod.namespace.ip("route add default via 10.244.0.1");
        pod.namespace.ip("-6 route add default via fd00:244::1");
        pod
    }

    pub fn capture(&mut self, pod: &Pod, rules: &Rules) {
        let path = pod.namespace.path();
        let place = pod_network::read(&path).unwrap();
        self.captures.put(&path, netns::cookie_of(&path).unwrap(), rules, &place).unwrap();
    }
}

/// The default rules of a sidecar's injector.
pub fn rules() -> Rules {
    Rules {
        outbound_port: OUTBOUND,
        inbound_port: INBOUND,
        tunnel_port: 15008,
        dns: None,
        proxy_uids: vec![PROXY.0],
        proxy_gids: vec![PROXY.1],
        owner_groups: OwnerGroups::AllBut(Vec::new()),
        include_outbound_ranges: Ranges::All,
        exclude_outbound_ranges: Vec::<IpNet>::new(),
        include_outbound_ports: Vec::new(),
        exclude_outbound_ports: Vec::new(),
        inbound_ports: InboundPorts::AllBut(vec![15020, 15021, 15090]),
        exclude_interfaces: Vec::new(),
        virtual_interfaces: Vec::new(),
        without_proxy: WithoutProxy::Refuse,
    }
}

/// The pod's proxy.
pub fn proxy(pod: &Pod) -> Greeter {
    Greeter::proxy(pod)
}

/// A program of the pod.
pub fn program(pod: &Pod, port: u16) -> Greeter {
    Greeter::program(pod, port)
}

/// What a client sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Met {
    pub seen: Seen,
    /// The client's view of both ends.
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// Dials from the pod as this user and group.
pub fn dial_as(pod: &Pod, owner: Owner, to: SocketAddr) -> io::Result<Met> {
    pod.namespace.run(|| as_owner(owner, || met(TcpStream::connect_timeout(&to, PATIENCE)?)))
}

pub fn met(stream: TcpStream) -> io::Result<Met> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
    Ok(Met { seen: Seen::read(&stream)?, local, peer })
}

pub fn of(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}

/// Parses what a server has said.
pub fn seen(text: &str) -> Seen {
    Seen::said(text).unwrap()
}
