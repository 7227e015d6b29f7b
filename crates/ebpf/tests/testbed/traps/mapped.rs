//! IPv6 sockets: with mapped addresses in every hook, with IPV6_V6ONLY, and with addresses of the other family.

use crate::node::{Node, backend};
use crate::sockets::{ask, at, dial, echo, fresh, hear, mapped, patient, peer, socket, socket6};
use rustix::io::Errno;
use rustix::net::{SocketType, connect, sendto, sockopt};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_mesh::object::Object;
use sidestep_mesh::state::Change;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::UdpSocket;

const VIP: &str = "10.96.0.1";
const VIP6: &str = "fd00:96::1";

#[test]
fn a_mapped_address_is_the_service_in_every_hook() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let (_server, _echo) = (backend(&server, 8080), echo(&server, 5353));
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    node.service("dns", Udp, VIP, 53, [(server.v4, 5353)]);
    node.service("none", Udp, "10.96.0.2", 53, []);
    client.namespace.run(|| {
        let vip = mapped(at(VIP, 53));
        assert_eq!(dial(mapped(at(VIP, 80))).unwrap(), (server.v4, mapped(at(VIP, 80))));
        assert_eq!(ask(&socket6(), vip), (server.v4, vip));
        let connected = socket6();
        connected.connect(vip).unwrap();
        assert_eq!(connected.peer_addr().unwrap(), vip);
        connected.send(b"?").unwrap();
        assert_eq!(hear(&connected), (server.v4, vip));
        let none = mapped(at("10.96.0.2", 53));
        assert_eq!(socket6().send_to(b"?", none).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(socket6().connect(none).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

/// connect() of an IPv6 UDP socket also accepts a plain IPv4 address.
#[test]
fn an_address_of_the_other_family_is_the_service_too() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    node.service("dns", Udp, VIP, 53, [(server.v4, 5353)]);
    client.namespace.run(|| {
        let (connected, vip) = (socket6(), at(VIP, 53));
        connect(&connected, &vip).unwrap();
        assert_eq!(connected.peer_addr().unwrap(), mapped(vip));
        connected.send(b"?").unwrap();
        assert_eq!(hear(&connected), (server.v4, mapped(vip)));
        let unconnected = socket6();
        sendto(&unconnected, b"?", rustix::net::SendFlags::empty(), &vip).unwrap();
        assert_eq!(hear(&unconnected), (server.v4, mapped(vip)));
    });
}

/// Such a socket has no IPv4, with or without Sidestep.
#[test]
fn a_socket_for_v6_only_reaches_v6_only() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let (_server, _echo) = (backend(&server, 8080), echo(&server, 5353));
    for (name, vip, address) in [("four", VIP, server.v4), ("six", VIP6, server.v6)] {
        node.service(&format!("{name}-web"), Tcp, vip, 80, [(address, 8080)]);
        node.service(&format!("{name}-dns"), Udp, vip, 53, [(address, 5353)]);
    }
    client.namespace.run(|| {
        let only = |kind| {
            let socket = fresh(kind, true);
            sockopt::set_ipv6_v6only(&socket, true).unwrap();
            socket
        };
        assert_eq!(connect(only(SocketType::STREAM), &mapped(at(VIP, 80))), Err(Errno::NETUNREACH));
        assert_eq!(connect(only(SocketType::DGRAM), &mapped(at(VIP, 53))), Err(Errno::NETUNREACH));
        let datagrams = patient(UdpSocket::from(only(SocketType::DGRAM)));
        let refused = datagrams.send_to(b"?", mapped(at(VIP, 53))).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::NETUNREACH.raw_os_error()));
        assert_eq!(ask(&datagrams, at(VIP6, 53)), (server.v6, at(VIP6, 53)));
        let stream = only(SocketType::STREAM);
        connect(&stream, &at(VIP6, 80)).unwrap();
        assert_eq!(peer(&stream), at(VIP6, 80));
    });
}

/// One socket uses both families of one Service.
#[test]
fn one_socket_hears_both_families_of_a_service() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    let mut service = crate::node::plain_service("dns", Udp, VIP, 53);
    service.cluster_ips.push(VIP6.parse().unwrap());
    node.change(Change::Put(Object::Service(service)));
    node.endpoints("dns", Udp, [(server.v4, 5353), (server.v6, 5353)]);
    client.namespace.run(|| {
        let both = socket6();
        let heard: BTreeSet<_> = [mapped(at(VIP, 53)), at(VIP6, 53)].into_iter().map(|to| ask(&both, to)).collect();
        assert_eq!(heard, BTreeSet::from([(server.v4, mapped(at(VIP, 53))), (server.v6, at(VIP6, 53))]));
        assert_eq!(ask(&socket(), at(VIP, 53)), (server.v4, at(VIP, 53)));
    });
}
