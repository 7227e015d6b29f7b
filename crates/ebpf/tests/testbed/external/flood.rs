//! Strangers that send more than the node can remember.

use super::world::{NODE, NODE_PORT, World, call, witness};
use crate::sockets::at;
use libbpf_rs::MapCore;
use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketType, sendto, socket};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_testkit::tables::table;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// More than each table has room for.
const SENDERS: u32 = 80_000;
/// Of `external_affinities` and `external_conversations`.
const ROOM: usize = 1 << 16;

pub const SYN: u8 = 0x02;
/// The port of the senders.
pub const PORT: u16 = 40_000;

/// Packets from as many addresses, which need not exist, to the NodePort.
fn flood(world: &World, protocol: u8) {
    world.outside.run(|| {
        let raw = raw();
        let to: Ipv4Addr = NODE[0].parse().unwrap();
        for number in 0..SENDERS {
            let from = Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + number);
            let packet = packet(from, to, protocol, SYN);
            sendto(&raw, &packet, rustix::net::SendFlags::empty(), &SocketAddr::from((to, 0))).unwrap();
        }
    });
}

/// A socket that sends packets with their headers.
pub fn raw() -> OwnedFd {
    let any = RawProtocol::new(255).map(Protocol::from_raw);
    socket(AddressFamily::INET, SocketType::RAW, any).unwrap()
}

/// An IPv4 packet with a segment that has these flags, or with an empty datagram. The kernel computes the checksum of the IP header.
pub fn packet(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, flags: u8) -> Vec<u8> {
    let ports = [PORT.to_be_bytes(), NODE_PORT.to_be_bytes()].concat();
    let rest: Vec<u8> = match protocol {
        6 => [&[0; 8][..], &[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]].concat(),
        _ => vec![0, 8, 0, 0],
    };
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend([from.octets(), to.octets()].concat());
    packet.extend([ports, rest].concat());
    if protocol == 6 {
        let sum = checksum(&packet[12..], 6);
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Of addresses and what follows the header.
fn checksum(from_addresses_on: &[u8], protocol: u16) -> u16 {
    let words = from_addresses_on.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let length = from_addresses_on.len() as u32 - 8;
    let mut sum: u32 = words.sum::<u32>() + u32::from(protocol) + length;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn entries(world: &World, name: &str) -> usize {
    table(&world.node.options.pins, name).keys().count()
}

/// The tables are bounded, and neither they nor the half-open connections keep others from being served.
#[test]
fn a_flood_from_many_addresses_fills_no_table_over_its_size_and_others_are_still_served() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    // With policy Cluster the flood takes all ports of the node's address towards this backend, as with kube-proxy.
    world.service(Tcp, &[(&pod, "node")], |service| {
        (service.affinity_seconds, service.external_local) = (Some(600), true);
    });
    flood(&world, 6);
    let kept = entries(&world, "external_affinities");
    assert!(kept > ROOM / 2 && kept <= ROOM, "{kept} affinities");
    let found = world.outside.run(|| call(at(NODE[0], NODE_PORT)));
    assert_eq!(found.server, pod.v4);
    world.service(Udp, &[(&pod, "node")], |_| {});
    flood(&world, 17);
    let kept = entries(&world, "external_conversations");
    assert!(kept > ROOM / 2 && kept <= ROOM, "{kept} conversations");
}
