//! The tuple of a connection, and its form in the table.

use std::net::{IpAddr, SocketAddr};

/// Size of `struct taken_key` in bytes (crates/bpf/src/taken.h).
pub(crate) const KEY: usize = 40;

/// A connection as this host sees it. An IPv4 address and its IPv4-mapped IPv6 form are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// VLAN id of the frames, 1 to 4094; 0: untagged, or tagged with priority only.
    pub vlan: u16,
}

impl Tuple {
    /// The tuple of a connection whose frames are untagged.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Tuple {
        Tuple { local, remote, vlan: 0 }
    }

    pub(crate) fn key(&self) -> [u8; KEY] {
        let mut key = [0; KEY];
        key[..16].copy_from_slice(&mapped(self.local.ip()));
        key[16..32].copy_from_slice(&mapped(self.remote.ip()));
        key[32..34].copy_from_slice(&self.local.port().to_be_bytes());
        key[34..36].copy_from_slice(&self.remote.port().to_be_bytes());
        key[36..38].copy_from_slice(&self.vlan.to_ne_bytes());
        key
    }
}

fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_ipv4_address_have_one_key() {
        let plain = Tuple::new("10.0.0.1:80".parse().unwrap(), "10.0.0.2:4000".parse().unwrap());
        let mapped = Tuple::new("[::ffff:10.0.0.1]:80".parse().unwrap(), "[::ffff:10.0.0.2]:4000".parse().unwrap());
        assert_eq!(plain.key(), mapped.key());
        let tail = [0, 80, 0x0f, 0xa0, 0, 0, 0, 0];
        assert_eq!(plain.key()[32..], tail);
        assert_ne!(plain.key(), Tuple { vlan: 1, ..plain }.key());
    }
}
