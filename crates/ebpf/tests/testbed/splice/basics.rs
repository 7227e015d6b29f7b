//! Bytes go by queue, in both directions, in every kind of connection.

use super::stream::exchange;
use super::world::{End, PORT, World, at_port, listen, pair_in};
use crate::sockets::mapped;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use sidestep_testkit::Pod;
use std::io::Write;
use std::net::{Ipv6Addr, SocketAddr};

#[test]
fn both_ways_go_by_queue_from_the_first_byte() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    client.write_all(b"hello").unwrap();
    assert_eq!(server.hear(5), b"hello");
    server.write_all(b"world").unwrap();
    assert_eq!(client.hear(5), b"world");
    let status = world.status();
    assert_eq!((status.connections, status.redirected.messages, status.redirected.bytes), (1, 2, 10));
    client.shutdown();
    server.write_all(b"still").unwrap();
    assert_eq!(client.hear(5), b"still");
    drop((client, server));
    assert_eq!(world.status().connections, 0);
}

#[test]
fn the_server_may_be_the_first_to_speak() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    server.write_all(b"220 hello").unwrap();
    assert_eq!(client.hear(9), b"220 hello");
    client.write_all(b"EHLO").unwrap();
    assert_eq!(server.hear(4), b"EHLO");
    assert_eq!(world.redirected(), 13);
}

#[test]
fn another_port_is_left_alone() {
    let world = World::new();
    let (mut client, mut server) = pair_in(&world.testbed.node, at_port(PORT + 100));
    client.write_all(b"hello").unwrap();
    server.hear(5);
    let status = world.status();
    assert_eq!((status.reason("spliced"), status.redirected.messages), (0, 0));
    assert!(status.reasons.iter().all(|(_, count)| *count == 0), "{:?}", status.reasons);
}

#[test]
fn ipv6_and_mapped_addresses() {
    let world = World::new();
    let (one, other) = pair_in(&world.testbed.node, SocketAddr::new(Ipv6Addr::LOCALHOST.into(), PORT));
    exchange(&one, &other, [100_000, 100_000], 5000, 1);
    // An IPv4 client of a dual-stack socket, and a client with a mapped address of an IPv4 socket.
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT + 1);
    let (client, server) = world.testbed.node.run(|| {
        let listener = listen(any);
        (End::connect(at_port(PORT + 1)).unwrap(), End::accept(&listener))
    });
    exchange(&client, &server, [100_000, 100_000], 5000, 2);
    let (client, server) = world.testbed.node.run(|| {
        let listener = listen(at_port(PORT + 2));
        (End::connect(mapped(at_port(PORT + 2))).unwrap(), End::accept(&listener))
    });
    exchange(&client, &server, [100_000, 100_000], 5000, 3);
    assert_eq!(world.reason("spliced"), 3);
}

/// Two pods: other namespaces, other addresses, a bridge between them.
#[test]
fn two_pods_of_a_node() {
    let mut world = World::new();
    let (one, other) = (world.testbed.pod(), world.testbed.pod());
    for ip in [other.v4, other.v6] {
        let at = SocketAddr::new(ip, PORT);
        let listener = other.namespace.run(|| listen(at));
        let client = one.namespace.run(|| End::connect(at).unwrap());
        let server = End::accept(&listener);
        exchange(&client, &server, [300_000, 300_000], 5000, 4);
    }
    assert_eq!(world.reason("spliced"), 2);
}

/// The same addresses and ports on the loopbacks of two namespaces are two connections.
#[test]
fn equal_tuples_of_two_namespaces_do_not_meet() {
    let mut world = World::new();
    let pods = [world.testbed.pod(), world.testbed.pod()];
    let connect = |pod: &Pod| {
        pod.namespace.run(|| {
            let listener = listen(at_port(PORT));
            let socket =
                net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
            net::bind(&socket, &at_port(40_000)).unwrap();
            (End::connect_by(socket, at_port(PORT)).unwrap(), End::accept(&listener))
        })
    };
    let (mut one, mut other) = (connect(&pods[0]), connect(&pods[1]));
    one.0.write_all(b"one").unwrap();
    other.0.write_all(b"two").unwrap();
    assert_eq!((one.1.hear(3), other.1.hear(3)), (b"one".to_vec(), b"two".to_vec()));
    assert_eq!(world.reason("spliced"), 2);
}
