//! TCP segments over IPv4 that a test sends itself, as a carrier of a taken connection would.

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use sidestep_testkit::Namespace;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

pub const ACK: u8 = 0x10;
pub const PUSH: u8 = 0x08;

/// A segment. The window is the field's value, not scaled.
pub struct Segment<'a> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// TSval; the echo is 0, which means that there is none.
    pub timestamp: Option<u32>,
    pub payload: &'a [u8],
}

/// Sends segments from a namespace.
pub struct Sender(OwnedFd);

impl Sender {
    pub fn new(namespace: &Namespace) -> Sender {
        let raw =
            || socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP)).expect("a raw socket (needs root)");
        Sender(namespace.run(raw))
    }

    pub fn send(&self, segment: &Segment) {
        let to = SocketAddrV4::new(*v4(segment.to).ip(), 0);
        let bytes = segment.bytes();
        assert_eq!(sendto(&self.0, &bytes, SendFlags::empty(), &to), Ok(bytes.len()));
    }
}

impl Segment<'_> {
    fn bytes(&self) -> Vec<u8> {
        // NOP NOP TIMESTAMP
        let options =
            self.timestamp.map_or(Vec::new(), |value| [&[1, 1, 8, 10][..], &value.to_be_bytes(), &[0; 4]].concat());
        let words = (20 + options.len()) / 4;
        let mut bytes = Vec::new();
        bytes.extend(self.from.port().to_be_bytes());
        bytes.extend(self.to.port().to_be_bytes());
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([(words as u8) << 4, self.flags]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0; 4]); // checksum, urgent pointer
        bytes.extend(options);
        bytes.extend(self.payload);
        let sum = self.checksum(&bytes);
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn checksum(&self, bytes: &[u8]) -> u16 {
        let mut all = [v4(self.from).ip().octets(), v4(self.to).ip().octets()].concat();
        all.extend([0, 6]);
        all.extend((bytes.len() as u16).to_be_bytes());
        all.extend(bytes);
        let sum: u32 = all.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        !((folded & 0xffff) + (folded >> 16)) as u16
    }
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => panic!("IPv4 only"),
    }
}
