//! Services without an endpoint that serves here.

use super::world::{BALANCER, CLUSTER, NODE, NODE_PORT, SHORT, World, call, frontends, witness};
use crate::sockets::{PATIENCE, at, socket, socket6};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The default limits let six answers to one client go at once, and one more each second.
const PAUSE: Duration = Duration::from_millis(1100);

fn dial(to: SocketAddr, patience: Duration) -> ErrorKind {
    TcpStream::connect_timeout(&to, patience).unwrap_err().kind()
}

fn ask(to: SocketAddr) -> ErrorKind {
    let socket = if to.is_ipv4() { socket() } else { socket6() };
    socket.connect(to).unwrap();
    socket.send(b"?").unwrap();
    socket.recv(&mut [0; 8]).unwrap_err().kind()
}

/// The kernel's limits of answers are off in the node's namespace.
fn without_limits(world: &World) {
    world.node.testbed.node.run(|| {
        for file in ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"] {
            std::fs::write(format!("/proc/sys/net/{file}"), "0").unwrap();
        }
    });
}

#[test]
fn without_any_endpoint_clients_are_told_at_once_and_can_connect_as_soon_as_there_is_one() {
    let mut world = World::new();
    let pod = world.pod();
    without_limits(&world);
    for policy_local in [false, true] {
        world.service(Tcp, &[], |service| service.external_local = policy_local);
        for to in (0..2).flat_map(|family| frontends(family).into_iter().chain([at(CLUSTER[family], 80)])) {
            assert_eq!(world.outside.run(|| dial(to, PATIENCE)), ErrorKind::ConnectionRefused, "{to}");
        }
    }
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |_| {});
    for family in 0..2 {
        for to in frontends(family) {
            world.outside.run(|| call(to).exchange(1000));
        }
    }
}

#[test]
fn datagrams_are_refused_too_also_those_that_come_in_fragments() {
    let mut world = World::new();
    without_limits(&world);
    world.service(Udp, &[], |_| {});
    for to in (0..2).flat_map(frontends) {
        assert_eq!(world.outside.run(|| ask(to)), ErrorKind::ConnectionRefused, "{to}");
        world.outside.run(|| {
            let socket = if to.is_ipv4() { socket() } else { socket6() };
            socket.connect(to).unwrap();
            socket.send(&[7; 4000]).unwrap();
            assert_eq!(socket.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{to}");
        });
    }
    assert_eq!(world.node.reason("packet-refused"), 12);
}

/// A load balancer must find out that this node does not serve, and another one does: as with kube-proxy there is no answer.
#[test]
fn with_policy_local_packets_are_dropped_if_other_nodes_serve() {
    let mut world = World::new();
    let pod = world.pod();
    world.service(Tcp, &[(&pod, "elsewhere")], |service| service.external_local = true);
    for to in [at(NODE[0], NODE_PORT), at(BALANCER[1], 80)] {
        assert_eq!(world.outside.run(|| dial(to, SHORT)), ErrorKind::TimedOut, "{to}");
    }
    assert!(world.node.reason("packet-without-endpoint") > 0 && world.node.reason("packet-refused") == 0);
    // The cluster IP is served by all endpoints.
    let _witness = witness(&pod);
    world.outside.run(|| call(at(CLUSTER[0], 80)).exchange(1000));
}

/// Nobody can use the node to send strangers many or large packets.
#[test]
fn answers_are_few_and_small() {
    const SENT: usize = 3000;
    let mut world = World::new();
    world.service(Udp, &[], |_| {});
    let to = at(NODE[0], NODE_PORT);
    // The smallest answer to the smallest packet has 57 bytes; none has more than 576.
    for (bytes, most) in [(&[0; 1][..], 57), (&[0; 1400], 576)] {
        let before = world.node.reason("packet-refused");
        let (packets, octets) = world.outside.run(|| {
            // The kernel's limits allow one more answer each second.
            std::thread::sleep(PAUSE);
            let (socket, before) = (socket(), received());
            (0..SENT).for_each(|_| drop(socket.send_to(bytes, to)));
            let (packets, octets) = received();
            (packets - before.0, octets - before.1)
        });
        assert_eq!(world.node.reason("packet-refused") - before, SENT as u64);
        assert!(0 < packets && packets < SENT as u64 / 50, "{packets} answers");
        assert!(octets <= packets * most, "{octets} bytes in {packets} answers");
    }
}

/// Packets and bytes that have arrived by IPv4.
fn received() -> (u64, u64) {
    let text = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    // A line of names is followed by one of numbers.
    let of = |text: &str, name: &str| {
        let mut lines = text.lines();
        let place = lines.find_map(|line| line.split_whitespace().position(|word| word == name)).unwrap();
        lines.next().unwrap().split_whitespace().nth(place).unwrap().parse::<u64>().unwrap()
    };
    (of(&text("snmp"), "InReceives"), of(&text("netstat"), "InOctets"))
}
