//! Frames of other networks, which pass a device of the node with the tag of a VLAN.

use super::flood::packet;
use super::world::{NODE, World, call, frontends, witness};
use crate::sockets::until;
use sidestep_mesh::address::Protocol::Tcp;
use std::net::Ipv4Addr;
use std::process::Command;

const SYN: u8 = 0x02;
const VLAN: u16 = 7;
/// A tag that says only how urgent the frame is: the network is the device's own.
const URGENT: u16 = 0x2000;

/// What is not the node's is neither translated nor dropped, whatever addresses it has.
#[test]
fn what_has_the_tag_of_a_vlan_is_left_alone() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |_| {});
    let to: Ipv4Addr = NODE[0].parse().unwrap();
    let frames = [(VLAN, "192.0.2.7"), (URGENT, "192.0.2.8")].map(|(tag, from)| {
        let packet = packet(from.parse().unwrap(), to, 6, SYN);
        [&tag.to_be_bytes()[..], &[8, 0], &packet[..]].concat()
    });
    // The kernel writes the header before the tag.
    let script = format!(
        "import socket\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)\n\
         for frame in {frames:?}: s.sendto(bytes(frame), ('eth0', 0x8100, 0, 1, bytes([255] * 6)))"
    );
    world.outside.finish(Command::new("/usr/bin/python3").args(["-c", &script]));
    let translated = || world.node.reason("packet-translated");
    until("the frame of the node's own network arrives", || translated() > 0);
    world.outside.run(|| call(frontends(0)[0]).exchange(1000));
    assert_eq!(translated(), 2);
}
