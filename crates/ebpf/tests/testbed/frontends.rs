//! Every kind of address of a Service, and unsupported parts of Services.

use crate::node::{self, Node, backend};
use crate::sockets::{ask, at, dial, echo, mapped, socket, socket6};
use sidestep_mesh::address::Protocol::{self, Tcp, Udp};
use sidestep_mesh::object::{Name, Object, Port, Slice, SlicePort};
use sidestep_mesh::plane::{FrontendKey, Scope};
use sidestep_mesh::state::Change;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;

const VIP: &str = "10.96.0.1";
const VIP6: &str = "fd00:96::1";
/// The node's addresses for pods.
const NODE: &str = "10.244.0.1";
const NODE6: &str = "fd00:244::1";

fn port(name: &str, protocol: Protocol, number: u16, node_port: Option<u16>) -> Port {
    Port { name: name.into(), protocol, port: number, node_port }
}

#[test]
fn external_and_load_balancer_addresses_are_the_service() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let (_server, _echo) = (backend(&server, 8080), echo(&server, 8080));
    let mut service = node::plain_service("web", Tcp, VIP, 80);
    service.cluster_ips.push(VIP6.parse().unwrap());
    service.external_ips = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap()).into();
    service.load_balancer_ips = ["198.51.100.1", "2001:db8::2"].map(|ip| ip.parse().unwrap()).into();
    let udp = sidestep_mesh::object::Service {
        name: Name::new("default", "udp"),
        ports: vec![port("", Udp, 80, None)],
        ..service.clone()
    };
    node.change(Change::Put(Object::Service(service)));
    node.change(Change::Put(Object::Service(udp)));
    for (name, protocol) in [("web", Tcp), ("udp", Udp)] {
        node.endpoints(name, protocol, [(server.v4, 8080), (server.v6, 8080)]);
    }
    client.namespace.run(|| {
        for ip in [VIP, "192.0.2.1", "198.51.100.1"] {
            for to in [at(ip, 80), mapped(at(ip, 80))] {
                assert_eq!(dial(to).unwrap(), (server.v4, to));
                assert_eq!(ask(&if to.is_ipv4() { socket() } else { socket6() }, to), (server.v4, to));
            }
        }
        for to in [VIP6, "2001:db8::1", "2001:db8::2"].map(|ip| at(ip, 80)) {
            assert_eq!(dial(to).unwrap(), (server.v6, to));
            assert_eq!(ask(&socket6(), to), (server.v6, to));
        }
    });
}

#[test]
fn each_named_port_has_its_own_endpoints() {
    let mut node = Node::new();
    let (client, one, two) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let (_one, _two, _dns) = (backend(&one, 8080), backend(&two, 9090), echo(&one, 5353));
    let mut service = node::plain_service("web", Tcp, VIP, 80);
    service.ports = vec![port("http", Tcp, 80, None), port("metrics", Tcp, 90, None), port("dns", Udp, 80, None)];
    node.change(Change::Put(Object::Service(service)));
    // A port's name has another number in another slice.
    for (name, pod, ports) in [
        ("first", &one, vec![("http", Tcp, 8080), ("dns", Udp, 5353)]),
        ("second", &two, vec![("metrics", Tcp, 9090), ("other", Tcp, 1)]),
    ] {
        let ports = ports.into_iter().map(|(name, protocol, port)| SlicePort { name: name.into(), protocol, port });
        node.change(Change::Put(Object::Slice(Slice {
            name: Name::new("default", name),
            service: "web".into(),
            ports: ports.collect(),
            endpoints: vec![node::ready(pod.v4)],
            weights: Default::default(),
            left: Vec::new(),
        })));
    }
    client.namespace.run(|| {
        assert_eq!(dial(at(VIP, 80)).unwrap(), (one.v4, at(VIP, 80)));
        assert_eq!(dial(at(VIP, 90)).unwrap(), (two.v4, at(VIP, 90)));
        assert_eq!(ask(&socket(), at(VIP, 80)), (one.v4, at(VIP, 80)));
        assert_eq!(socket().connect(at(VIP, 90)).unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    });
}

#[test]
fn each_family_of_a_dual_stack_service_has_its_own_endpoints() {
    let mut node = Node::new();
    let (client, four, six) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _servers = [backend(&four, 8080), backend(&six, 8080)];
    let mut service = node::plain_service("web", Tcp, VIP, 80);
    service.cluster_ips.push(VIP6.parse().unwrap());
    node.change(Change::Put(Object::Service(service)));
    node.endpoints("web", Tcp, [(four.v4, 8080), (six.v6, 8080)]);
    client.namespace.run(|| {
        for _ in 0..10 {
            assert_eq!(dial(at(VIP, 80)).unwrap(), (four.v4, at(VIP, 80)));
            assert_eq!(dial(at(VIP6, 80)).unwrap(), (six.v6, at(VIP6, 80)));
        }
    });
    node.endpoints("web", Tcp, [(four.v4, 8080)]);
    client.namespace.run(|| {
        assert_eq!(dial(at(VIP, 80)).unwrap().0, four.v4);
        assert_eq!(dial(at(VIP6, 80)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

/// A NodePort of both families answers at the node's addresses of both, and on the node also at the IPv4 loopback.
#[test]
fn node_ports_of_both_families() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let (_server, _echo) = (backend(&server, 8080), echo(&server, 8080));
    for (name, protocol) in [("web", Tcp), ("dns", Udp)] {
        let mut service = node::plain_service(name, protocol, VIP, 80);
        service.cluster_ips.push(VIP6.parse().unwrap());
        service.ports = vec![port("", protocol, 80, Some(30080))];
        node.change(Change::Put(Object::Service(service)));
        node.endpoints(name, protocol, [(server.v4, 8080), (server.v6, 8080)]);
    }
    node.maps.set_node_addresses(&[NODE, NODE6].map(|ip| at(ip, 0).ip().into()).into(), |_| true).unwrap();
    let reach = |to: SocketAddr| {
        let who = if to.is_ipv4() || to.ip().to_canonical().is_ipv4() { server.v4 } else { server.v6 };
        assert_eq!(dial(to).unwrap(), (who, to));
        assert_eq!(ask(&if to.is_ipv4() { socket() } else { socket6() }, to), (who, to));
    };
    let everywhere = [at(NODE, 30080), mapped(at(NODE, 30080)), at(NODE6, 30080)];
    let refused = |ip: &str| assert_eq!(dial(at(ip, 30080)).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{ip}");
    client.namespace.run(|| {
        everywhere.into_iter().for_each(reach);
        ["127.0.0.1", "::ffff:127.0.0.1", "::1"].into_iter().for_each(refused);
    });
    node.testbed.node.run(|| {
        everywhere.into_iter().for_each(reach);
        [at("127.0.0.1", 30080), mapped(at("127.0.0.1", 30080)), at("127.1.2.3", 30080)].into_iter().for_each(reach);
        refused("::1");
    });
}

/// A NodePort of a single-family Service answers in that family only.
#[test]
fn a_node_port_answers_in_its_services_families_only() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _server = backend(&server, 8080);
    let mut service = node::plain_service("web", Tcp, VIP6, 80);
    service.ports = vec![port("", Tcp, 80, Some(30080))];
    node.change(Change::Put(Object::Service(service)));
    node.endpoints("web", Tcp, [(server.v6, 8080)]);
    node.maps.set_node_addresses(&[NODE, NODE6].map(|ip| at(ip, 0).ip().into()).into(), |_| true).unwrap();
    client.namespace.run(|| {
        assert_eq!(dial(at(NODE6, 30080)).unwrap(), (server.v6, at(NODE6, 30080)));
        assert_eq!(dial(at(NODE, 30080)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

/// SCTP is reported as unsupported; the Service's other ports, also those with the same number, are programmed.
#[test]
fn sctp_is_left_alone() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _server = backend(&server, 8080);
    let text = r#"
{apiVersion: v1, kind: Service, metadata: {name: mixed}, spec: {clusterIP: 10.96.0.1, ports: [
  {name: s, protocol: SCTP, port: 80}, {name: t, protocol: TCP, port: 80}, {name: only, protocol: SCTP, port: 90}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: mixed-1, labels: {kubernetes.io/service-name: mixed}},
 addressType: IPv4, endpoints: [{addresses: [ADDRESS]}],
 ports: [{name: s, protocol: SCTP, port: 7}, {name: t, protocol: TCP, port: 8080}, {name: only, protocol: SCTP, port: 7}]}
"#;
    let objects = sidestep_mesh::yaml::parse(&text.replace("ADDRESS", &server.v4.to_string())).unwrap();
    let left = objects.iter().find_map(|object| match object {
        Object::Service(service) => Some(service.left.iter().map(|left| left.what.as_str()).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(left, Some(vec!["port 80", "port 90"]));
    node.change(Change::All(objects));
    let (found, none) = client.namespace.run(|| (dial(at(VIP, 80)), dial(at(VIP, 90))));
    assert_eq!(found.unwrap(), (server.v4, at(VIP, 80)));
    assert_eq!(none.unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    let programmed: BTreeSet<u16> =
        node.reconciler.ports().iter().flat_map(|port| &port.table.frontends).map(|key| key.port).collect();
    assert_eq!(programmed, BTreeSet::from([80]));
    let key = FrontendKey { address: at(VIP, 0).ip().into(), port: 80, protocol: Tcp, scope: Scope::Address };
    assert!(node.maps.frontend(&key).unwrap().is_some());
}
