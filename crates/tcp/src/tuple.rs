//! The addresses and ports of a connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Which connection a segment belongs to. An IPv4 address is held as the IPv6 address that it maps to (RFC 4291, section
/// 2.5.5.2), so one table holds both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// This host's address.
    pub local: Ipv6Addr,
    /// The peer's address.
    pub remote: Ipv6Addr,
    /// This host's port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
}

impl Tuple {
    /// The tuple of a socket with these names. Scope and flow information are left out.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Tuple {
        Tuple {
            local: mapped(local.ip()),
            remote: mapped(remote.ip()),
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    /// The same connection as the peer sees it.
    #[must_use]
    pub fn reversed(self) -> Tuple {
        Tuple { local: self.remote, remote: self.local, local_port: self.remote_port, remote_port: self.local_port }
    }

    /// Whether its packets are IPv4. `None`: the addresses are of two families, and no packet has both.
    pub fn is_v4(&self) -> Option<bool> {
        let of = |address: Ipv6Addr| address.to_ipv4_mapped().is_some();
        (of(self.local) == of(self.remote)).then(|| of(self.local))
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_an_ipv4_address_are_one() {
        let remote = "192.0.2.1:80".parse().expect("an address");
        let plain = Tuple::new("192.0.2.9:5000".parse().expect("an address"), remote);
        let mapped = Tuple::new("[::ffff:192.0.2.9]:5000".parse().expect("an address"), remote);
        assert_eq!(plain, mapped);
        assert_eq!(plain.is_v4(), Some(true));
        assert_eq!(plain.reversed().reversed(), plain);
    }

    #[test]
    fn a_packet_has_one_family() {
        let v6 = "[2001:db8::1]:80".parse().expect("an address");
        assert_eq!(Tuple::new(v6, v6).is_v4(), Some(false));
        assert_eq!(Tuple::new(v6, "192.0.2.1:80".parse().expect("an address")).is_v4(), None);
    }
}
