//! Whose a frame is that the fast path does not understand. The device's program finds the same (bpf/src/frame.h): it gives user
//! space every frame that would reach a taken connection's socket.

use super::checksum::{PROTOCOL_TCP, add, fold};
use super::parse::ETHERNET_LEN;
use crate::Tuple;
use std::net::Ipv6Addr;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const VLAN_ID: u16 = 0x0fff;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const FRAGMENT: u8 = 44;
/// Hop-by-hop, routing, fragment and destination headers.
const EXTENSIONS: [u8; 4] = [0, 43, FRAGMENT, 60];
/// Tags, and extension headers, that the device's program reads.
const MOST_TAGS: usize = 4;
const MOST_EXTENSIONS: usize = 8;
const ICMP_LEN: usize = 8;

/// The connection whose segment the frame carries, behind whatever headers, or about which it carries an ICMP error. `None`: no
/// connection's, or the kernel would drop it.
pub fn about(frame: &[u8]) -> Option<Tuple> {
    let (ethertype, bytes) = untagged(frame)?;
    let packet = Packet::read(ethertype, bytes)?;
    if ethertype == IPV4 && !is_intact(bytes) {
        return None;
    }
    if packet.protocol == PROTOCOL_TCP {
        let (remote_port, local_port) = ports(packet.rest)?;
        return Some(Tuple { local: packet.to, remote: packet.from, local_port, remote_port });
    }
    let sent = quoted(&packet)?;
    let (local_port, remote_port) = ports(sent.rest)?;
    Some(Tuple { local: sent.from, remote: sent.to, local_port, remote_port })
}

/// The EtherType and what follows. The kernel ignores tags that have a priority only.
fn untagged(frame: &[u8]) -> Option<(u16, &[u8])> {
    let (ethernet, mut rest) = frame.split_first_chunk::<ETHERNET_LEN>()?;
    let mut ethertype = u16::from_be_bytes([ethernet[12], ethernet[13]]);
    for _ in 0..MOST_TAGS {
        if !TAGS.contains(&ethertype) {
            break;
        }
        let (tag, after) = rest.split_first_chunk::<4>()?;
        if u16::from_be_bytes([tag[0], tag[1]]) & VLAN_ID != 0 {
            return None;
        }
        (ethertype, rest) = (u16::from_be_bytes([tag[2], tag[3]]), after);
    }
    Some((ethertype, rest))
}

/// An IP packet, or the beginning of one.
struct Packet<'f> {
    from: Ipv6Addr,
    to: Ipv6Addr,
    protocol: u8,
    /// What follows the IP headers.
    rest: &'f [u8],
}

impl<'f> Packet<'f> {
    /// `None`: also for all fragments but the first, which have no ports.
    fn read(ethertype: u16, packet: &'f [u8]) -> Option<Packet<'f>> {
        match ethertype {
            IPV4 => Packet::read_v4(packet),
            IPV6 => Packet::read_v6(packet),
            _ => None,
        }
    }

    fn read_v4(packet: &'f [u8]) -> Option<Packet<'f>> {
        let fixed = packet.first_chunk::<20>()?;
        let is_first = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff == 0;
        if fixed[0] >> 4 != 4 || !is_first {
            return None;
        }
        let (header, rest) = packet.split_at_checked(usize::from(fixed[0] & 15) * 4)?;
        if header.len() < fixed.len() {
            return None;
        }
        let address = |at: usize| std::net::Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
        let (from, to) = (address(12).to_ipv6_mapped(), address(16).to_ipv6_mapped());
        Some(Packet { from, to, protocol: fixed[9], rest })
    }

    fn read_v6(packet: &'f [u8]) -> Option<Packet<'f>> {
        let (header, rest) = packet.split_first_chunk::<40>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let address = |at: usize| Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|n| header[at + n]));
        let (protocol, rest) = behind_extensions(header[6], rest)?;
        Some(Packet { from: address(8), to: address(24), protocol, rest })
    }
}

fn behind_extensions(mut protocol: u8, mut rest: &[u8]) -> Option<(u8, &[u8])> {
    for _ in 0..MOST_EXTENSIONS {
        if !EXTENSIONS.contains(&protocol) {
            break;
        }
        let header = rest.first_chunk::<4>()?;
        let is_fragment = protocol == FRAGMENT;
        if is_fragment && u16::from_be_bytes([header[2], header[3]]) & 0xfff8 != 0 {
            return None;
        }
        let len = if is_fragment { 8 } else { (usize::from(header[1]) + 1) * 8 };
        (protocol, rest) = (header[0], rest.get(len..)?);
    }
    Some((protocol, rest))
}

/// Whether the checksum of the packet's IPv4 header is right. The kernel looks only at the packet's own one: the header that an ICMP
/// error quotes was changed on its way, and its checksum may be an older one.
fn is_intact(packet: &[u8]) -> bool {
    let header = packet.first().and_then(|first| packet.get(..usize::from(first & 15) * 4));
    header.is_some_and(|header| fold(add(0, header)) == 0xffff)
}

/// The segment of this host that an ICMP error quotes.
fn quoted<'f>(packet: &Packet<'f>) -> Option<Packet<'f>> {
    let (header, quote) = packet.rest.split_first_chunk::<ICMP_LEN>()?;
    let ethertype = match (packet.protocol, header[0]) {
        // Destination unreachable, source quench, time exceeded, parameter problem.
        (ICMP, 3 | 4 | 11 | 12) => IPV4,
        (ICMPV6, 1..=4) => IPV6,
        _ => return None,
    };
    Packet::read(ethertype, quote).filter(|sent| sent.protocol == PROTOCOL_TCP)
}

/// Source and destination.
fn ports(tcp: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *tcp.first_chunk::<4>()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn tuple(local: &str, remote: &str) -> Tuple {
        Tuple::new(local.parse().expect("an address"), remote.parse().expect("an address"))
    }

    fn v4() -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64);
        written(builder.tcp(4000, 80, 1, 1000), b"abc")
    }

    fn written(builder: etherparse::PacketBuilderStep<etherparse::TcpHeader>, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).expect("a frame");
        frame
    }

    fn v6() -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6([2; 16], [1; 16], 64);
        written(builder.tcp(4000, 80, 1, 1000), b"abc")
    }

    fn of_v4() -> Option<Tuple> {
        Some(tuple("10.0.0.1:80", "10.0.0.2:4000"))
    }

    fn of_v6() -> Option<Tuple> {
        let address = |byte: u8| Ipv6Addr::from([byte; 16]).to_string();
        Some(tuple(&format!("[{}]:80", address(1)), &format!("[{}]:4000", address(2))))
    }

    /// Sets the checksum of the IPv4 header that begins at `at`.
    fn sum(frame: &mut [u8], at: usize) {
        let len = usize::from(frame[at] & 15) * 4;
        frame[at + 10..at + 12].fill(0);
        let sum = !fold(add(0, &frame[at..at + len]));
        frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    }

    #[test]
    fn plain_segments() {
        assert_eq!((about(&v4()), about(&v6())), (of_v4(), of_v6()));
    }

    #[test]
    fn segments_behind_options_tags_and_extension_headers() {
        let mut options = v4();
        options.splice(34..34, [1, 1, 1, 0]);
        options[14] = 0x46;
        sum(&mut options, 14);
        assert_eq!(about(&options), of_v4());
        let mut tagged = v4();
        tagged.splice(12..12, [0x81, 0, 0xe0, 0]);
        assert_eq!(about(&tagged), of_v4());
        tagged[15] = 5;
        assert_eq!(about(&tagged), None, "a connection of another VLAN");
        let mut extended = v6();
        extended.splice(54..54, [44, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 9]);
        extended[20] = 60;
        assert_eq!(about(&extended), of_v6());
    }

    #[test]
    fn fragments_with_ports_and_without() {
        for (offset, whose) in [(0x2000u16, of_v4()), (0x2001, None), (0x0001, None)] {
            let mut frame = v4();
            frame[20..22].copy_from_slice(&offset.to_be_bytes());
            sum(&mut frame, 14);
            assert_eq!(about(&frame), whose, "{offset:#x}");
        }
    }

    /// An error about a segment that this host has sent: addresses and ports as the host wrote them.
    fn error(kind: u8) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let sent = written(builder.tcp(80, 4000, 1, 1000), b"");
        let mut frame = v4()[..34].to_vec();
        frame[23] = ICMP;
        sum(&mut frame, 14);
        frame.extend([kind, 3, 0, 0, 0, 0, 0, 0]);
        frame.extend(&sent[14..42]);
        frame
    }

    #[test]
    fn icmp_errors_and_no_other_icmp() {
        assert_eq!(about(&error(3)), of_v4());
        assert_eq!(about(&error(8)), None, "an echo request");
    }

    #[test]
    fn a_quoted_header_may_have_the_checksum_of_another_hop() {
        let (ttl, mut quoted) = (14 + 20 + ICMP_LEN + 8, error(3));
        assert_eq!(quoted[ttl], 64);
        quoted[ttl] -= 1;
        assert_eq!(about(&quoted), of_v4());
        quoted[14 + 8] -= 1;
        assert_eq!(about(&quoted), None, "the packet's own header is damaged");
    }

    #[test]
    fn damaged_and_cut_frames_are_nobody_s() {
        let mut damaged = v4();
        damaged[30] ^= 1;
        assert_eq!(about(&damaged), None);
        for whole in [v4(), v6(), error(3)] {
            for len in 0..whole.len() {
                let _ = about(&whole[..len]);
            }
            assert_eq!(about(&whole[..36]), None);
        }
    }
}
