//! Frames from `there` to `here`.

use crate::wire::{HERE, THERE};
use etherparse::{
    Icmpv4Type, Icmpv6Type, IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv6Extensions,
    Ipv6FragmentHeader, Ipv6Header, PacketBuilder, icmpv4, icmpv6,
};

pub const LOCAL_PORT: u16 = 80;
pub const REMOTE_PORT: u16 = 4000;

const V4: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

fn v6(number: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[15]) = (0xfd, number);
    address
}

fn ipv4(from: [u8; 4], to: [u8; 4]) -> Ipv4Header {
    Ipv4Header::new(0, 64, IpNumber::TCP, from, to).unwrap()
}

/// IP headers from `there` to `here`.
pub fn four() -> IpHeaders {
    IpHeaders::Ipv4(ipv4(V4[1], V4[0]), Ipv4Extensions::default())
}

/// Likewise, changed.
pub fn four_with(change: impl FnOnce(&mut Ipv4Header)) -> IpHeaders {
    let mut header = ipv4(V4[1], V4[0]);
    change(&mut header);
    IpHeaders::Ipv4(header, Ipv4Extensions::default())
}

pub fn six() -> IpHeaders {
    six_with(Ipv6Extensions::default())
}

pub fn six_with(extensions: Ipv6Extensions) -> IpHeaders {
    let header = Ipv6Header { source: v6(2), destination: v6(1), hop_limit: 64, ..Ipv6Header::default() };
    IpHeaders::Ipv6(header, extensions)
}

pub fn fragment_header(offset: u16) -> Ipv6FragmentHeader {
    Ipv6FragmentHeader::new(IpNumber::TCP, IpFragOffset::try_new(offset).unwrap(), true, 7)
}

/// A segment as an IP packet.
pub fn segment(headers: IpHeaders, ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ip(headers).tcp(ports[0], ports[1], 1000, 500).ack(77).psh();
    builder.write(&mut packet, payload).unwrap();
    packet
}

pub fn syn(headers: IpHeaders, ports: [u16; 2]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ip(headers).tcp(ports[0], ports[1], 1000, 500).syn().write(&mut packet, &[]).unwrap();
    packet
}

pub fn datagram(headers: IpHeaders, ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ip(headers).udp(ports[0], ports[1]).write(&mut packet, payload).unwrap();
    packet
}

/// An IPv4 packet of this protocol, between the same hosts, around these bytes.
pub fn around(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = Ipv4Header::new(payload.len() as u16, 64, IpNumber(protocol), V4[1], V4[0]).unwrap();
    header.header_checksum = header.calc_header_checksum();
    [&header.to_bytes()[..], payload].concat()
}

/// A segment of the taken connection, with this payload.
pub fn taken(headers: IpHeaders, payload: &[u8]) -> Vec<u8> {
    segment(headers, [REMOTE_PORT, LOCAL_PORT], payload)
}

/// ICMP errors about a segment that `here` has sent on the taken connection.
pub fn icmp_error_v4() -> Vec<u8> {
    let own = IpHeaders::Ipv4(ipv4(V4[0], V4[1]), Ipv4Extensions::default());
    let quoted = &segment(own, [LOCAL_PORT, REMOTE_PORT], b"")[..28];
    let error =
        Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: 1400 });
    let mut packet = Vec::new();
    PacketBuilder::ip(four()).icmpv4(error).write(&mut packet, quoted).unwrap();
    packet
}

pub fn icmp_error_v6() -> Vec<u8> {
    let header = Ipv6Header { source: v6(1), destination: v6(2), hop_limit: 64, ..Ipv6Header::default() };
    let own = IpHeaders::Ipv6(header, Ipv6Extensions::default());
    let quoted = segment(own, [LOCAL_PORT, REMOTE_PORT], b"");
    let mut packet = Vec::new();
    PacketBuilder::ip(six()).icmpv6(Icmpv6Type::PacketTooBig { mtu: 1400 }).write(&mut packet, &quoted).unwrap();
    packet
}

pub fn ping(headers: IpHeaders) -> Vec<u8> {
    let mut packet = Vec::new();
    if matches!(headers, IpHeaders::Ipv4(..)) {
        PacketBuilder::ip(headers).icmpv4_echo_request(1, 2).write(&mut packet, b"ping").unwrap();
    } else {
        let echo = Icmpv6Type::EchoRequest(etherparse::IcmpEchoHeader { id: 1, seq: 2 });
        PacketBuilder::ip(headers).icmpv6(echo).write(&mut packet, b"ping").unwrap();
    }
    packet
}

/// An ICMPv6 error that quotes nothing.
pub fn icmp_error_without_quote() -> Vec<u8> {
    let mut packet = Vec::new();
    let error = Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Port);
    PacketBuilder::ip(six()).icmpv6(error).write(&mut packet, b"").unwrap();
    packet
}

/// An IPv6 packet whose TCP header is behind this many destination options headers.
pub fn behind_headers(count: usize) -> Vec<u8> {
    let mut packet = taken(six(), b"deep");
    let headers: Vec<u8> =
        (0..count).flat_map(|i| [if i + 1 == count { 6 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]).collect();
    if count > 0 {
        packet[6] = 60;
    }
    let length = u16::from_be_bytes([packet[4], packet[5]]) + headers.len() as u16;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet.splice(40..40, headers);
    packet
}

/// The packet in an untagged frame.
pub fn ethernet(packet: &[u8]) -> Vec<u8> {
    tagged(&[], packet)
}

/// The packet in a frame with these VLAN tags: TPID, then priority and id.
pub fn tagged(tags: &[[u16; 2]], packet: &[u8]) -> Vec<u8> {
    let ethertype: u16 = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    let mut frame = [HERE, THERE].concat();
    frame.extend(tags.iter().flatten().flat_map(|word| word.to_be_bytes()));
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

/// A frame of this length that no host knows the use of, from `from` to `to`, with a number.
pub fn experimental(from: [u8; 6], to: [u8; 6], number: u32, length: usize) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend(EXPERIMENTAL.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u32 ^ number) as u8));
    frame
}

/// IEEE 802 local experimental EtherType 1.
pub const EXPERIMENTAL: u16 = 0x88b5;
