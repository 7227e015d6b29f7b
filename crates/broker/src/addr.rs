//! Addresses. Inside they are 16 bytes, with IPv4 addresses mapped at the edge, so that one path serves both families.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// One end of a connection: address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    ip: [u8; 16],
    port: u16,
}

impl Endpoint {
    /// `ip`: an IPv4 address is mapped to IPv6.
    pub fn new(ip: [u8; 16], port: u16) -> Endpoint {
        Endpoint { ip, port }
    }

    /// An address of 127.0.0.0/8 or ::1, which means another host in each network namespace.
    pub fn is_loopback(&self) -> bool {
        self.ip_addr().is_loopback()
    }

    /// The address in its own family: a mapped one becomes IPv4 again.
    pub fn to_socket_addr(self) -> SocketAddr {
        SocketAddr::new(self.ip_addr(), self.port)
    }

    fn ip_addr(&self) -> IpAddr {
        Ipv6Addr::from(self.ip).to_canonical()
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(addr: SocketAddr) -> Endpoint {
        let ip = match addr.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Endpoint { ip, port: addr.port() }
    }
}

impl From<(IpAddr, u16)> for Endpoint {
    fn from((ip, port): (IpAddr, u16)) -> Endpoint {
        SocketAddr::new(ip, port).into()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_socket_addr().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Endpoint {
        text.parse::<SocketAddr>().expect("an address").into()
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address() {
        assert_eq!(endpoint("[::ffff:10.0.0.1]:80"), endpoint("10.0.0.1:80"));
        assert_ne!(endpoint("10.0.0.1:80"), endpoint("10.0.0.1:81"));
        assert_eq!(endpoint("[::ffff:10.0.0.1]:80").to_string(), "10.0.0.1:80");
    }

    #[test]
    fn loopback_is_known_in_every_spelling() {
        for text in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(endpoint(text).is_loopback(), "{text}");
        }
        assert!(!endpoint("10.0.0.1:1").is_loopback());
    }
}
