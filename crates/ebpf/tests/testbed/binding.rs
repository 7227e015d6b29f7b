//! bind() on the node: ports of Services are taken there, and nowhere else.

use crate::node::{self, Node};
use crate::sockets::{at, fresh};
use rustix::io::Errno;
use rustix::net::{SocketType, bind, sockopt};
use sidestep_mesh::address::Protocol::{self, Tcp, Udp};
use sidestep_mesh::object::{Name, Object, Service};
use sidestep_mesh::state::Change;
use sidestep_testkit::Namespace;
use std::net::SocketAddr;

/// An address of the node, so that it can be bound there.
const EXTERNAL: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const VIPS: [&str; 2] = ["10.96.0.1", "fd00:96::1"];

fn service(name: &str, protocol: Protocol, families: &[usize]) -> Service {
    let mut service = node::plain_service(name, protocol, VIPS[families[0]], 80);
    service.cluster_ips = families.iter().map(|family| VIPS[*family].parse().unwrap()).collect();
    service.external_ips = families.iter().map(|family| EXTERNAL[*family].parse().unwrap()).collect();
    service.ports[0].node_port = Some(30080);
    service
}

/// Adds the address to that namespace.
fn own(namespace: &Namespace, address: &str) {
    let (family, rest) = if address.contains(':') { ("-6 ", "/128 dev lo nodad") } else { ("", "/32 dev lo") };
    namespace.ip(&format!("{family}addr add {address}{rest}"));
}

/// A node with all of these addresses.
fn node(services: impl IntoIterator<Item = Service>) -> Node {
    let mut node = Node::new();
    EXTERNAL.iter().chain(&VIPS).for_each(|address| own(&node.testbed.node, address));
    for service in services {
        node.change(Change::Put(Object::Service(service)));
    }
    node
}

fn kind(protocol: Protocol) -> SocketType {
    if protocol == Tcp { SocketType::STREAM } else { SocketType::DGRAM }
}

fn try_bind(protocol: Protocol, to: SocketAddr, v6_only: bool) -> Result<(), Errno> {
    let socket = fresh(kind(protocol), to.is_ipv6());
    if v6_only {
        sockopt::set_ipv6_v6only(&socket, true).unwrap();
    }
    bind(&socket, &to)
}

#[test]
fn node_ports_and_external_addresses_are_taken_on_the_node() {
    let mut node = node([service("web", Tcp, &[0, 1]), service("dns", Udp, &[0, 1])]);
    let pod = node.testbed.pod();
    let taken = [
        at("0.0.0.0", 30080),
        at("127.0.0.1", 30080),
        at("10.244.0.1", 30080),
        at("192.0.2.1", 30080),
        at("::", 30080),
        at("::1", 30080),
        at("fd00:244::1", 30080),
        at("::ffff:10.244.0.1", 30080),
        at("192.0.2.1", 80),
        at("::ffff:192.0.2.1", 80),
        at("2001:db8::1", 80),
    ];
    let free = [
        at("0.0.0.0", 30081),
        at("::", 30081),
        at("127.0.0.1", 80),
        at("10.244.0.1", 80),
        at("fd00:244::1", 80),
        at("192.0.2.1", 81),
        at("2001:db8::1", 81),
        at("0.0.0.0", 0),
        at("::", 0),
    ];
    node.testbed.node.run(|| {
        for protocol in [Tcp, Udp] {
            for to in taken {
                assert_eq!(try_bind(protocol, to, false), Err(Errno::ADDRINUSE), "{protocol} {to}");
            }
            for to in free {
                assert_eq!(try_bind(protocol, to, false), Ok(()), "{protocol} {to}");
            }
        }
    });
    assert_eq!(node.reason("bind-refused"), 2 * taken.len() as u64);
    // A pod's ports are not affected.
    EXTERNAL.iter().for_each(|address| own(&pod.namespace, address));
    let nodes_own = ["10.244.0.1", "fd00:244::1"].map(|ip| at(ip, 0).ip());
    let in_pod = taken.into_iter().filter(|to| !nodes_own.contains(&to.ip().to_canonical()));
    pod.namespace.run(|| {
        for to in in_pod {
            assert_eq!([Tcp, Udp].map(|protocol| try_bind(protocol, to, false)), [Ok(()); 2], "{to}");
        }
    });
}

/// An IPv6 socket bound to :: takes IPv4 ports, too, unless it is IPV6_V6ONLY.
#[test]
fn a_wildcard_of_both_families_takes_both() {
    let node = node([service("web", Tcp, &[0])]);
    node.testbed.node.run(|| {
        assert_eq!(try_bind(Tcp, at("::", 30080), false), Err(Errno::ADDRINUSE));
        assert_eq!(try_bind(Tcp, at("::", 30080), true), Ok(()));
        assert_eq!(try_bind(Tcp, at("fd00:244::1", 30080), false), Ok(()));
        assert_eq!(try_bind(Udp, at("::", 30080), false), Ok(()), "another protocol");
    });
}

/// The node does not hold ports at cluster IPs: a cache may add such an address to the node and serve there.
#[test]
fn a_cluster_address_is_free_for_whoever_has_it() {
    let node = node([service("web", Tcp, &[0, 1]), service("dns", Udp, &[0, 1])]);
    node.testbed.node.run(|| {
        for to in [at(VIPS[0], 80), at(VIPS[1], 80)] {
            assert_eq!([Tcp, Udp].map(|protocol| try_bind(protocol, to, false)), [Ok(()); 2], "{to}");
        }
        assert_eq!(try_bind(Tcp, at(VIPS[0], 30080), false), Err(Errno::ADDRINUSE), "a NodePort is taken everywhere");
    });
}

/// The port is free again when the Service has gone.
#[test]
fn a_port_is_free_when_the_service_has_gone() {
    let mut node = node([service("web", Tcp, &[0, 1])]);
    let refused =
        || [at("0.0.0.0", 30080), at("192.0.2.1", 80), at("2001:db8::1", 80)].map(|to| try_bind(Tcp, to, false));
    assert_eq!(node.testbed.node.run(refused), [Err(Errno::ADDRINUSE); 3]);
    node.change(Change::Delete(sidestep_mesh::object::Key::Service(Name::new("default", "web"))));
    assert_eq!(node.testbed.node.run(refused), [Ok(()); 3]);
}
