//! UDP, fragments and ICMP errors.

use super::world::{CLIENT, INSIDE, NODE, NODE_PORT, World, frontends};
use crate::sockets::{ask, at, echo, patient, socket, socket6, until};
use rustix::io::Errno;
use sidestep_mesh::address::Protocol::Udp;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;

#[test]
fn datagrams_are_answered_from_the_address_that_was_asked() {
    let mut world = World::new();
    let pod = world.pod();
    let _echo = echo(&pod, 8080);
    world.service(Udp, &[(&pod, "node")], |_| {});
    world.outside.run(|| {
        for (family, server) in [pod.v4, pod.v6].into_iter().enumerate() {
            for to in frontends(family) {
                let socket = if family == 0 { socket() } else { socket6() };
                assert_eq!(ask(&socket, to), (server, to));
            }
        }
    });
}

/// Each fragment after the first one has no ports.
#[test]
fn fragments_arrive_as_one_datagram() {
    for local in [false, true] {
        let mut world = World::new();
        let pod = world.pod();
        let server = pod.namespace.run(|| patient(UdpSocket::bind("[::]:8080").unwrap()));
        world.service(Udp, &[(&pod, "node")], |service| service.external_local = local);
        for (family, to) in [0, 1].map(|family| (family, frontends(family)[0])) {
            let sent: Vec<u8> = (0..9000).map(|i| (i / 7) as u8).collect();
            let client = world.outside.run(|| if family == 0 { socket() } else { socket6() });
            client.send_to(&sent, to).unwrap();
            let mut found = vec![0; 10_000];
            let (length, from) = server.recv_from(&mut found).unwrap();
            assert!(found[..length] == sent);
            let expected = if local { CLIENT } else { INSIDE };
            assert_eq!(from.ip().to_canonical().to_string(), expected[family]);
            server.send_to(&found[..length], from).unwrap();
            let (length, from) = client.recv_from(&mut found).unwrap();
            assert!(found[..length] == sent && from == to);
        }
    }
}

/// What does not fit into the backend's device is the kernel's to fragment, or to answer by an ICMP error.
#[test]
fn a_first_datagram_that_is_too_large_for_the_backends_device_is_fragmented_or_answered() {
    let mut world = World::new();
    let pod = world.pod();
    let server = pod.namespace.run(|| patient(UdpSocket::bind("[::]:8080").unwrap()));
    world.service(Udp, &[(&pod, "node")], |_| {});
    world.node.testbed.node.ip("link set br0 mtu 1400");
    let sent = [7_u8; 1440];
    let arrives = || assert_eq!(server.recv(&mut [0; 2000]).unwrap(), sent.len());
    let connected = |to: SocketAddr| {
        let socket = if to.is_ipv4() { socket() } else { socket6() };
        socket.connect(to).unwrap();
        socket
    };
    let may_be_fragmented = |is: &str| std::fs::write("/proc/sys/net/ipv4/ip_no_pmtu_disc", is).unwrap();
    world.outside.run(|| {
        may_be_fragmented("1");
        connected(frontends(0)[0]).send(&sent).unwrap();
        arrives();
        may_be_fragmented("0");
        for to in [frontends(0)[0], frontends(1)[0]] {
            let socket = connected(to);
            socket.send(&sent).unwrap();
            let told = socket.recv(&mut [0; 8]).unwrap_err();
            assert_eq!(told.raw_os_error(), Some(Errno::MSGSIZE.raw_os_error()), "{to}");
            // The client's kernel fragments from now on.
            socket.send(&sent).unwrap();
            arrives();
        }
    });
}

/// The backend's "port unreachable" names the backend; the client must see it for the address that it has sent to.
#[test]
fn icmp_errors_are_translated() {
    let mut world = World::new();
    let pod = world.pod();
    world.service(Udp, &[(&pod, "node")], |_| {});
    world.outside.run(|| {
        for to in [frontends(0)[0], frontends(1)[0]] {
            let socket = if to.is_ipv4() { socket() } else { socket6() };
            socket.connect(to).unwrap();
            socket.send(b"?").unwrap();
            assert_eq!(socket.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{to}");
        }
    });
}

#[test]
fn a_conversation_goes_on_with_another_backend_when_its_backend_has_gone() {
    let mut world = World::new();
    let pods = [world.pod(), world.pod()];
    let _echoes = [echo(&pods[0], 8080), echo(&pods[1], 8080)];
    let to = frontends(0)[0];
    let client = world.outside.run(socket);
    for pod in [&pods[0], &pods[1], &pods[0]] {
        world.service(Udp, &[(pod, "node")], |_| {});
        for _ in 0..3 {
            assert_eq!(ask(&client, to), (pod.v4, to));
        }
    }
}

/// Numbers of backends are given out again.
#[test]
fn a_conversation_does_not_take_another_backend_for_its_own() {
    let mut world = World::new();
    let pods = [world.pod(), world.pod()];
    let _echoes = [echo(&pods[0], 8080), echo(&pods[1], 8080)];
    let to = frontends(0)[0];
    let client = world.outside.run(socket);
    world.service(Udp, &[(&pods[0], "node")], |_| {});
    assert_eq!(ask(&client, to), (pods[0].v4, to));
    world.service(Udp, &[], |_| {});
    let node = &mut world.node;
    node.reconciler.collect_garbage(&mut node.maps, 2_000_000_000).unwrap();
    world.service(Udp, &[(&pods[1], "node")], |_| {});
    assert_eq!(ask(&client, to), (pods[1].v4, to));
}

/// To the program both look alike: a backend that no route leads to, and one that is the node itself.
#[test]
fn a_backend_without_a_route_is_not_taken_for_the_node() {
    let mut world = World::new();
    let pod = world.pod();
    let server = pod.namespace.run(|| patient(UdpSocket::bind("[::]:8080").unwrap()));
    world.service(Udp, &[(&pod, "node")], |_| {});
    let (client, to) = (world.outside.run(socket), frontends(0)[0]);
    let before = world.node.reason("packet-not-tracked");
    world.node.testbed.node.ip("route del 10.244.0.0/16 dev br0");
    client.send_to(b"?", to).unwrap();
    until("the packet is dropped", || world.node.reason("packet-not-tracked") > before);
    world.node.testbed.node.ip("route add 10.244.0.0/16 dev br0 src 10.244.0.1");
    client.send_to(b"?", to).unwrap();
    let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
    assert_eq!(from.ip().to_canonical().to_string(), INSIDE[0]);
    server.send_to(b"!", from).unwrap();
    assert_eq!(client.recv_from(&mut [0; 8]).unwrap(), (1, to));
}

#[test]
fn a_backend_in_the_nodes_network_sees_the_client() {
    let mut world = World::new();
    let own = at(INSIDE[0], 8080);
    let server = world.node.testbed.node.run(|| patient(UdpSocket::bind(own).unwrap()));
    world.service(Udp, &[], |_| {});
    world.node.endpoints("web", Udp, [(own.ip(), own.port())]);
    let (client, to) = (world.outside.run(socket), frontends(0)[0]);
    client.send_to(b"?", to).unwrap();
    let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
    assert_eq!(from.ip(), at(CLIENT[0], 0).ip());
    server.send_to(b"!", from).unwrap();
    assert_eq!(client.recv_from(&mut [0; 8]).unwrap(), (1, to));
}

/// The node may masquerade a pod's own flow at a port that is a NodePort as well.
#[test]
fn an_answer_to_a_masqueraded_flow_is_no_datagram_of_a_client() {
    let mut world = World::new();
    let (caller, backend) = (world.pod(), world.pod());
    let _echo = echo(&backend, 8080);
    world.service(Udp, &[(&backend, "node")], |_| {});
    world.masquerade("udp dport 9999", NODE_PORT);
    for family in [0, 1] {
        let to = at(CLIENT[family], 9999);
        let server = world.outside.run(|| patient(UdpSocket::bind(to).unwrap()));
        let client = caller.namespace.run(|| if family == 0 { socket() } else { socket6() });
        for _ in 0..3 {
            let mut found = [0; 8];
            client.send_to(b"?", to).unwrap();
            let (_, masqueraded) = server.recv_from(&mut found).unwrap();
            assert_eq!(masqueraded, at(NODE[family], NODE_PORT));
            server.send_to(b"!", masqueraded).unwrap();
            let (length, from) = client.recv_from(&mut found).unwrap();
            assert_eq!((&found[..length], from), (&b"!"[..], to));
        }
    }
}

/// As a resolver does, which asks for both families of a name. Two processors see two first datagrams.
#[test]
fn two_datagrams_at_once_both_arrive() {
    let mut world = World::new();
    let pod = world.pod();
    let _echo = echo(&pod, 8080);
    world.service(Udp, &[(&pod, "elsewhere")], |_| {});
    world.outside.run(|| {
        for number in 0..2_000 {
            let client = socket();
            let both = Barrier::new(2);
            let send = |what: &[u8]| {
                both.wait();
                client.send_to(what, at(NODE[0], NODE_PORT)).unwrap();
            };
            std::thread::scope(|scope| {
                scope.spawn(|| send(b"A"));
                send(b"B");
            });
            for answer in 0..2 {
                let received = client.recv_from(&mut [0; 8]);
                assert!(received.is_ok(), "pair {number}, answer {answer}: {received:?}");
            }
        }
    });
}
