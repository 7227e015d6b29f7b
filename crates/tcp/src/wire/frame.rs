//! A segment as a frame.

use super::checksum::{PROTOCOL_TCP, add, fold, pseudo};
use super::options::{ALIGNED_TIMESTAMPS, Timestamps};
use super::parse::{ETHERNET_LEN, Flags, TCP_LEN};
use crate::{Seq, Tuple};

/// Where the packets of a connection go, and what its IP headers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The device's address.
    pub local_mac: [u8; 6],
    /// The address of the next hop.
    pub remote_mac: [u8; 6],
    /// Type of service or traffic class. The two ECN bits are left out: no packet of the fast path is ECN-capable, as RFC 3168
    /// leaves to a sender.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hops: u8,
    /// The flow label of IPv6: 20 bits.
    pub flow_label: u32,
}

/// Both addresses of a tuple must be of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tuple's addresses are IPv4 and IPv6, and no packet can have both; do not take this connection")]
pub struct MixedFamilies;

/// The headers of the packets that a connection sends, with zeros for what differs between them.
#[derive(Clone, Debug)]
pub struct Headers {
    bytes: [u8; MOST],
    /// Bytes in front of the TCP header.
    tcp_at: usize,
    is_v4: bool,
    tuple: Tuple,
    local_mac: [u8; 6],
}

const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const TIMESTAMPS_LEN: usize = 12;
const MOST: usize = ETHERNET_LEN + V6_LEN + TCP_LEN + TIMESTAMPS_LEN;

/// What differs between the headers of a connection's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The number of the first byte.
    pub seq: Seq,
    /// The acknowledgement number.
    pub ack: Seq,
    /// The flags.
    pub flags: Flags,
    /// The window field, scaled.
    pub window: u16,
    /// The timestamps option, if there is to be one.
    pub timestamps: Option<Timestamps>,
}

/// A frame could not be written. Nothing must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The buffer is shorter than the frame, or the packet longer than IP permits.
    #[error(
        "a frame of {need} bytes does not fit; give a buffer as large as the device's MTU and {ETHERNET_LEN} bytes more"
    )]
    Room {
        /// Bytes of the frame.
        need: usize,
    },
    /// The caller's payload is not as long as the segment's.
    #[error("the payload has {given} bytes, and the segment {due}; pass exactly the bytes that the segment names")]
    Payload {
        /// Bytes that were passed.
        given: usize,
        /// Bytes of the segment.
        due: usize,
    },
}

impl Headers {
    /// Bytes that the headers of a frame take at most.
    pub const MOST: usize = MOST;

    /// The headers of a connection.
    pub fn new(tuple: Tuple, link: &Link) -> Result<Headers, MixedFamilies> {
        let is_v4 = tuple.is_v4().ok_or(MixedFamilies)?;
        let mut bytes = [0; MOST];
        bytes[..6].copy_from_slice(&link.remote_mac);
        bytes[6..12].copy_from_slice(&link.local_mac);
        let ip = if is_v4 { v4(&mut bytes, &tuple, link) } else { v6(&mut bytes, &tuple, link) };
        let tcp_at = ETHERNET_LEN + ip;
        bytes[tcp_at..tcp_at + 2].copy_from_slice(&tuple.local_port.to_be_bytes());
        bytes[tcp_at + 2..tcp_at + 4].copy_from_slice(&tuple.remote_port.to_be_bytes());
        Ok(Headers { bytes, tcp_at, is_v4, tuple, local_mac: link.local_mac })
    }

    /// The connection.
    pub fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// The device's address.
    #[inline]
    pub fn local_mac(&self) -> [u8; 6] {
        self.local_mac
    }

    /// Writes a frame whose checksums are complete, and returns its length. `payload`: its bytes in two parts, since a ring
    /// wraps.
    #[inline]
    pub fn write(&self, frame: &mut [u8], fields: &Fields, payload: [&[u8]; 2]) -> Result<usize, WriteError> {
        let header = TCP_LEN + if fields.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 };
        let [first, second] = payload;
        let tcp_len = header + first.len() + second.len();
        let need = self.tcp_at + tcp_len;
        let frame = frame.get_mut(..need).filter(|_| need <= LONGEST).ok_or(WriteError::Room { need })?;
        let (headers, body) = frame.split_at_mut(self.tcp_at + header);
        headers.copy_from_slice(&self.bytes[..self.tcp_at + header]);
        let (one, two) = body.split_at_mut(first.len());
        one.copy_from_slice(first);
        two.copy_from_slice(second);
        let (before, tcp) = frame.split_at_mut(self.tcp_at);
        let ip = &mut before[ETHERNET_LEN..];
        let addresses = if self.is_v4 { finish_v4(ip, tcp_len) } else { finish_v6(ip, tcp_len) };
        fill(tcp, header, fields);
        let checksum = !fold(add(pseudo(addresses, tcp_len), tcp));
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        Ok(need)
    }
}

/// No frame is longer: an IPv4 packet has at most 65535 bytes.
const LONGEST: usize = ETHERNET_LEN + 65535;

/// Writes the header, and returns its length.
fn v4(bytes: &mut [u8; MOST], tuple: &Tuple, link: &Link) -> usize {
    bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut bytes[ETHERNET_LEN..][..V4_LEN];
    ip[0] = 0x45;
    ip[1] = link.traffic_class & !3;
    // Never to be fragmented, so the identification is of no use (RFC 6864).
    ip[6] = 0x40;
    ip[8] = link.hops;
    ip[9] = PROTOCOL_TCP;
    ip[12..16].copy_from_slice(&tuple.local.octets()[12..]);
    ip[16..20].copy_from_slice(&tuple.remote.octets()[12..]);
    V4_LEN
}

/// Writes the header, and returns its length.
fn v6(bytes: &mut [u8; MOST], tuple: &Tuple, link: &Link) -> usize {
    bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
    let ip = &mut bytes[ETHERNET_LEN..][..V6_LEN];
    let first = 6 << 28 | u32::from(link.traffic_class & !3) << 20 | link.flow_label & 0xf_ffff;
    ip[..4].copy_from_slice(&first.to_be_bytes());
    ip[6] = PROTOCOL_TCP;
    ip[7] = link.hops;
    ip[8..24].copy_from_slice(&tuple.local.octets());
    ip[24..40].copy_from_slice(&tuple.remote.octets());
    V6_LEN
}

/// Writes length and checksum. Returns the addresses.
fn finish_v4(ip: &mut [u8], tcp_len: usize) -> &[u8] {
    ip[2..4].copy_from_slice(&((V4_LEN + tcp_len) as u16).to_be_bytes());
    let checksum = !fold(add(0, ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    &ip[12..20]
}

/// Writes the length. Returns the addresses.
fn finish_v6(ip: &mut [u8], tcp_len: usize) -> &[u8] {
    ip[4..6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
    &ip[8..40]
}

fn fill(tcp: &mut [u8], header: usize, fields: &Fields) {
    tcp[4..8].copy_from_slice(&fields.seq.0.to_be_bytes());
    tcp[8..12].copy_from_slice(&fields.ack.0.to_be_bytes());
    // The data offset counts 32-bit words, in the highest four bits.
    let offset = (header / 4) << 12;
    tcp[12..14].copy_from_slice(&(offset as u16 | fields.flags.0 & 0xfff).to_be_bytes());
    tcp[14..16].copy_from_slice(&fields.window.to_be_bytes());
    if let Some(Timestamps { value, echo }) = fields.timestamps {
        tcp[20..24].copy_from_slice(&ALIGNED_TIMESTAMPS);
        tcp[24..28].copy_from_slice(&value.to_be_bytes());
        tcp[28..32].copy_from_slice(&echo.to_be_bytes());
    }
}
