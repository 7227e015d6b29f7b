//! A frame as a segment.

use super::checksum::{PROTOCOL_TCP, add, fold, pseudo};
use super::options::Options;
use crate::{Seq, Tuple};
use std::net::Ipv6Addr;

/// What is known of the TCP checksums of the frames of a device. The checksum of an IPv4 header is always verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Each is complete: frames from a wire.
    Complete,
    /// Each is complete, or holds the sum of the pseudo-header alone, as a Linux sender leaves it to a device. Frames from a
    /// sender on this host, by veth or bridge.
    MayBePartial,
    /// The device has verified them.
    Verified,
}

/// Why a frame is no segment for the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The fast path does not know this kind of packet. The kernel should get it.
    #[error("the frame is not plain TCP over IPv4 or IPv6: {0}; hand it to the kernel")]
    NotUnderstood(&'static str),
    /// The kernel would drop this packet as well.
    #[error("the packet is damaged: {0}; drop it")]
    Damaged(&'static str),
}

use FrameError::{Damaged, NotUnderstood};

/// The flags of a TCP header: eight in the last byte, the four above them in the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(
    /// The bits, as in the header.
    pub u16,
);

impl Flags {
    /// The sender sends nothing after this segment.
    pub const FIN: Flags = Flags(1);
    /// The segment opens a connection.
    pub const SYN: Flags = Flags(1 << 1);
    /// The sender aborts the connection.
    pub const RST: Flags = Flags(1 << 2);
    /// The receiver should give the program what it has.
    pub const PSH: Flags = Flags(1 << 3);
    /// The acknowledgement number counts.
    pub const ACK: Flags = Flags(1 << 4);
    /// The urgent pointer counts.
    pub const URG: Flags = Flags(1 << 5);
    /// ECE, CWR and AE: congestion was seen (RFC 3168, RFC 9768).
    pub const CONGESTION: Flags = Flags(0b1_1100_0000);
    /// Bits without a meaning.
    pub const RESERVED: Flags = Flags(0b1110_0000_0000);

    /// Whether one of these is set.
    #[inline]
    pub const fn has(self, any: Flags) -> bool {
        self.0 & any.0 != 0
    }

    /// All flags of both.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A TCP segment that arrived. Its lengths and its checksums are right; nothing else has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'f> {
    /// The device address that the frame was sent to.
    pub mac: [u8; 6],
    /// Whose segment it is. `local` is the destination.
    pub tuple: Tuple,
    /// Whether a router has marked the packet (Congestion Experienced).
    pub is_marked: bool,
    /// The number of the first byte.
    pub seq: Seq,
    /// The acknowledgement number.
    pub ack: Seq,
    /// The flags.
    pub flags: Flags,
    /// The window field, not scaled.
    pub window: u16,
    /// The options.
    pub options: Options,
    /// The bytes.
    pub payload: &'f [u8],
}

impl<'f> Segment<'f> {
    /// Reads an Ethernet frame, with or without padding at its end.
    #[inline]
    pub fn parse(frame: &'f [u8], checksums: Checksums) -> Result<Segment<'f>, FrameError> {
        let packet = Packet::parse(frame)?;
        packet.verify(checksums)?;
        packet.segment()
    }

    /// Sequence numbers that it takes: bytes, SYN and FIN (SEG.LEN).
    #[inline]
    pub fn len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN))
    }

    /// Whether it takes no sequence numbers.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes of a TCP header without options.
pub const TCP_LEN: usize = 20;
/// Bytes of an Ethernet header without tags.
pub const ETHERNET_LEN: usize = 14;

/// An IP packet whose payload is TCP: its lengths are right.
pub struct Packet<'f> {
    mac: [u8; 6],
    tuple_addresses: (Ipv6Addr, Ipv6Addr),
    /// Source and destination, as in the IP header.
    addresses: &'f [u8],
    traffic_class: u8,
    /// TCP header and payload, at least [`TCP_LEN`] bytes.
    tcp: &'f [u8],
    /// Bytes of the frame before `tcp`.
    tcp_at: usize,
}

impl<'f> Packet<'f> {
    /// Reads the headers before TCP's.
    #[inline]
    pub fn parse(frame: &'f [u8]) -> Result<Packet<'f>, FrameError> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_LEN>().ok_or(Damaged("the frame is too short"))?;
        let mac = [ethernet[0], ethernet[1], ethernet[2], ethernet[3], ethernet[4], ethernet[5]];
        match [ethernet[12], ethernet[13]] {
            [0x08, 0x00] => Packet::parse_v4(mac, packet),
            [0x86, 0xdd] => Packet::parse_v6(mac, packet),
            _ => Err(NotUnderstood("another EtherType")),
        }
    }

    fn parse_v4(mac: [u8; 6], packet: &'f [u8]) -> Result<Packet<'f>, FrameError> {
        let header = packet.first_chunk::<20>().ok_or(Damaged("the IPv4 header is cut"))?;
        match header[0] {
            0x45 => {}
            0x46..=0x4f => return Err(NotUnderstood("IPv4 options")),
            _ => return Err(Damaged("the version is not 4")),
        }
        // More fragments, or an offset (RFC 791).
        if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
            return Err(NotUnderstood("a fragment"));
        }
        if header[9] != PROTOCOL_TCP {
            return Err(NotUnderstood("another protocol"));
        }
        if fold(add(0, header)) != 0xffff {
            return Err(Damaged("the IPv4 checksum is wrong"));
        }
        let end = usize::from(u16::from_be_bytes([header[2], header[3]]));
        Ok(Packet {
            mac,
            tuple_addresses: (v4(header, 12), v4(header, 16)),
            addresses: &packet[12..20],
            traffic_class: header[1],
            tcp: tcp_part(packet, header.len(), end)?,
            tcp_at: ETHERNET_LEN + header.len(),
        })
    }

    fn parse_v6(mac: [u8; 6], packet: &'f [u8]) -> Result<Packet<'f>, FrameError> {
        let header = packet.first_chunk::<40>().ok_or(Damaged("the IPv6 header is cut"))?;
        if header[0] >> 4 != 6 {
            return Err(Damaged("the version is not 6"));
        }
        if header[6] != PROTOCOL_TCP {
            return Err(NotUnderstood("an extension header or another protocol"));
        }
        let (remote, local) = (v6(header, 8), v6(header, 24));
        // Such addresses stand for IPv4 in tuples. The kernel drops such packets as well (RFC 4038, section 4.2).
        if remote.to_ipv4_mapped().is_some() || local.to_ipv4_mapped().is_some() {
            return Err(Damaged("an IPv4-mapped address in an IPv6 packet"));
        }
        let end = header.len() + usize::from(u16::from_be_bytes([header[4], header[5]]));
        Ok(Packet {
            mac,
            tuple_addresses: (remote, local),
            addresses: &packet[8..40],
            traffic_class: header[0] << 4 | header[1] >> 4,
            tcp: tcp_part(packet, header.len(), end)?,
            tcp_at: ETHERNET_LEN + header.len(),
        })
    }

    /// Checks the TCP checksum.
    #[inline]
    pub fn verify(&self, checksums: Checksums) -> Result<(), FrameError> {
        let is_right = match checksums {
            Checksums::Verified => true,
            Checksums::Complete => self.is_complete(),
            Checksums::MayBePartial => self.is_partial() || self.is_complete(),
        };
        if is_right { Ok(()) } else { Err(Damaged("the TCP checksum is wrong")) }
    }

    /// Whether the checksum covers the whole segment, and is right.
    #[inline]
    pub fn is_complete(&self) -> bool {
        fold(add(self.pseudo(), self.tcp)) == 0xffff
    }

    /// Whether the checksum field holds the sum of the pseudo-header.
    #[inline]
    pub fn is_partial(&self) -> bool {
        u16::from_be_bytes([self.tcp[16], self.tcp[17]]) == fold(self.pseudo())
    }

    /// The checksum that the segment should have, and the place of its field in the frame.
    pub fn due_checksum(&self) -> ([u8; 2], usize) {
        let without_field = add(add(self.pseudo(), &self.tcp[..16]), &self.tcp[18..]);
        ((!fold(without_field)).to_be_bytes(), self.tcp_at + 16)
    }

    #[inline]
    fn pseudo(&self) -> u64 {
        pseudo(self.addresses, self.tcp.len())
    }

    /// Bytes of the frame before the TCP header.
    pub fn tcp_at(&self) -> usize {
        self.tcp_at
    }

    /// Bytes of the TCP header, as it says itself. [`Packet::segment`] checks that.
    pub fn tcp_header_len(&self) -> usize {
        usize::from(self.tcp[12] >> 4) * 4
    }

    #[inline]
    pub fn segment(&self) -> Result<Segment<'f>, FrameError> {
        let header = self.tcp.first_chunk::<TCP_LEN>().ok_or(CUT)?;
        let len = usize::from(header[12] >> 4) * 4;
        if len < TCP_LEN {
            return Err(Damaged("the data offset is too small"));
        }
        let (headers, payload) = self.tcp.split_at_checked(len).ok_or(CUT)?;
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let (remote, local) = self.tuple_addresses;
        Ok(Segment {
            mac: self.mac,
            tuple: Tuple { local, remote, local_port: half(2), remote_port: half(0) },
            is_marked: self.traffic_class & 3 == 3,
            seq: Seq(word(4)),
            ack: Seq(word(8)),
            flags: Flags(half(12) & 0xfff),
            window: half(14),
            options: Options::parse(&headers[TCP_LEN..]),
            payload,
        })
    }
}

const CUT: FrameError = Damaged("the TCP header is cut");

/// The bytes of a packet from `from` to `end`, the end that the IP header names. What the frame holds after them is padding.
fn tcp_part(packet: &[u8], from: usize, end: usize) -> Result<&[u8], FrameError> {
    let tcp = packet.get(from..end).ok_or(Damaged("the IP length does not fit the frame"))?;
    if tcp.len() < TCP_LEN { Err(CUT) } else { Ok(tcp) }
}

/// The address at this place of an IPv4 header.
fn v4(header: &[u8; 20], at: usize) -> Ipv6Addr {
    std::net::Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).to_ipv6_mapped()
}

/// The address at this place of an IPv6 header.
fn v6(header: &[u8; 40], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|n| header[at + n]))
}

/// Completes the TCP checksum of a frame if it is partial ([`Checksums::MayBePartial`]), as the kernel expects it of a frame
/// that is injected.
pub fn complete_checksum(frame: &mut [u8]) -> Result<(), FrameError> {
    let packet = Packet::parse(frame)?;
    if packet.is_complete() {
        return Ok(());
    }
    packet.verify(Checksums::MayBePartial)?;
    let (checksum, at) = packet.due_checksum();
    frame[at..at + 2].copy_from_slice(&checksum);
    Ok(())
}
