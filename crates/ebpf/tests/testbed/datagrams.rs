//! Datagrams to Services, connected and not.

use crate::node::Node;
use crate::sockets::{ask, at, echo, hear, socket, socket6};
use sidestep_mesh::address::Protocol::Udp;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

#[test]
fn a_service_answers_as_itself_and_a_socket_keeps_its_backend() {
    let mut node = Node::new();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod(), node.testbed.pod()]);
    let _echoes: Vec<_> = pods.iter().map(|pod| echo(pod, 5353)).collect();
    node.service("dns", Udp, "10.96.0.53", 53, pods.iter().map(|pod| (pod.v4, 5353)));
    let vip = at("10.96.0.53", 53);
    let reached: BTreeSet<IpAddr> = client.namespace.run(|| {
        (0..60)
            .map(|_| {
                let socket = socket();
                let (who, from) = ask(&socket, vip);
                assert_eq!(from, vip);
                assert_eq!(ask(&socket, vip), (who, vip));
                who
            })
            .collect()
    });
    assert_eq!(reached, pods.iter().map(|pod| pod.v4).collect());
}

#[test]
fn a_connected_socket_hears_the_service_and_names_it_as_its_peer() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    node.service("dns", Udp, "10.96.0.53", 53, [(server.v4, 5353)]);
    client.namespace.run(|| {
        let (socket, vip) = (socket(), at("10.96.0.53", 53));
        socket.connect(vip).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), vip);
        socket.send(b"?").unwrap();
        assert_eq!(hear(&socket), (server.v4, vip));
        // An address on a connected socket takes precedence.
        let direct = SocketAddr::new(server.v4, 5353);
        assert_eq!(socket.send_to(b"?", direct).map(|_| hear(&socket).0).unwrap(), server.v4);
    });
}

#[test]
fn a_mapped_datagram_is_the_v4_service() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    node.service("dns", Udp, "10.96.0.53", 53, [(server.v4, 5353)]);
    client.namespace.run(|| {
        let socket = socket6();
        let vip = at("::ffff:10.96.0.53", 53);
        assert_eq!(ask(&socket, vip), (server.v4, vip));
    });
}

#[test]
fn what_a_backend_is_asked_directly_it_answers_as_itself() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    node.service("dns", Udp, "10.96.0.53", 53, [(server.v4, 5353)]);
    client.namespace.run(|| {
        let (socket, vip, direct) = (socket(), at("10.96.0.53", 53), SocketAddr::new(server.v4, 5353));
        assert_eq!(ask(&socket, vip).1, vip);
        assert_eq!(ask(&socket, direct).1, direct);
        assert_eq!(ask(&socket, vip).1, vip);
    });
}

/// If there are enough backends, two Services on one socket that share backends get different ones: answers of a common backend
/// could not be told apart.
#[test]
fn two_services_on_one_socket_do_not_share_a_backend() {
    let mut node = Node::new();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod()]);
    let _echoes: Vec<_> = pods.iter().map(|pod| echo(pod, 5353)).collect();
    let endpoints = || pods.iter().map(|pod| (pod.v4, 5353));
    node.service("one", Udp, "10.96.0.1", 53, endpoints());
    node.service("two", Udp, "10.96.0.2", 53, endpoints());
    let (one, two) = (at("10.96.0.1", 53), at("10.96.0.2", 53));
    let collisions = client.namespace.run(|| {
        (0..200)
            .filter(|_| {
                let socket = socket();
                let (first, second) = (ask(&socket, one), ask(&socket, two));
                assert_eq!((first.1, second.1), (one, two));
                first.0 == second.0
            })
            .count()
    });
    // Each of four tries finds the other backend half of the time: about 12 of 200 fail, and hardly ever more than 50.
    assert!(collisions <= 50, "{collisions} of 200");
}

/// A socket that is connected to a backend that has gone gets another one; other sockets are left alone.
#[test]
fn sockets_of_a_backend_that_has_gone_are_led_to_another() {
    let mut node = Node::new();
    let (client, one, two) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _echoes = [echo(&one, 5353), echo(&two, 5353)];
    node.service("dns", Udp, "10.96.0.53", 53, [(one.v4, 5353)]);
    node.service("other", Udp, "10.96.0.54", 53, [(one.v4, 5353)]);
    let connect = |to: SocketAddr| {
        client.namespace.run(|| {
            let socket = socket();
            socket.connect(to).unwrap();
            socket
        })
    };
    let (stale, direct) = (connect(at("10.96.0.53", 53)), connect(SocketAddr::new(one.v4, 5353)));
    let (unconnected, other) = (client.namespace.run(socket), connect(at("10.96.0.54", 53)));
    assert_eq!(ask(&unconnected, at("10.96.0.53", 53)).0, one.v4);
    let outcome = node.endpoints("dns", Udp, [(two.v4, 5353)]);
    assert!(outcome.lost_udp);
    assert_eq!(sidestep_ebpf::reclaim::run(&node.options.pins, false).unwrap().moved, 1);
    stale.send(b"?").unwrap();
    assert_eq!(hear(&stale).0, two.v4);
    for socket in [&direct, &other] {
        socket.send(b"?").unwrap();
        assert_eq!(hear(socket).0, one.v4);
    }
    assert_eq!(ask(&unconnected, at("10.96.0.53", 53)), (two.v4, at("10.96.0.53", 53)));
}
