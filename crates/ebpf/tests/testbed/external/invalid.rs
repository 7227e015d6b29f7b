//! Packets that conntrack does not take for part of a connection.

use super::flood::{packet, raw};
use super::world::{CLIENT, World, call, frontends, witness};
use rustix::net::{SendFlags, sendto};
use sidestep_mesh::address::Protocol::Tcp;
use std::net::{IpAddr, SocketAddr};

const SYN_ACK: u8 = 0x12;

/// A late packet of a backend is not translated. The client would answer it with a reset, which the backend takes for the end.
#[test]
fn a_packet_of_a_backend_that_belongs_to_no_connection_does_not_reach_the_client() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |_| {});
    let IpAddr::V4(from) = pod.v4 else { panic!("{}", pod.v4) };
    let to = CLIENT[0].parse().unwrap();
    let before = world.outside.run(resets);
    pod.namespace.run(|| {
        let packet = packet(from, to, 6, SYN_ACK);
        sendto(raw(), &packet, SendFlags::empty(), &SocketAddr::from((to, 0))).unwrap();
    });
    // Packets of one device keep their order.
    world.outside.run(|| call(frontends(0)[0]).exchange(1000));
    assert_eq!(world.outside.run(resets), before);
}

/// How many segments with RST have been sent.
fn resets() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let place = lines.next().unwrap().split_whitespace().position(|word| word == "OutRsts").unwrap();
    lines.next().unwrap().split_whitespace().nth(place).unwrap().parse().unwrap()
}
