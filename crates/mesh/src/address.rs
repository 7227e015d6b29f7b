//! Addresses, endpoints and protocols. One type serves both IP families, as in the maps.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address in the maps' form: IPv4 address a.b.c.d is `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub Ipv6Addr);

impl Address {
    /// The address for output: `::ffff:a.b.c.d` becomes `a.b.c.d`.
    pub fn ip(self) -> IpAddr {
        self.0.to_canonical()
    }

    /// That of [`Address::ip`]: an IPv4-mapped address is V4.
    pub fn family(self) -> Family {
        Family::of(self.ip())
    }
}

/// IP versions. A Service has backends of its own in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// For an [`Address`] also an IPv4-mapped one.
    V4,
    /// For an [`Address`] only an IPv6 address that is not IPv4-mapped.
    V6,
}

impl Family {
    /// IPv4 first, which is the order of a Service's tables.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];

    /// Looks only at the form: an IPv4-mapped IPv6 address is V6 here, but V4 for [`Address::family`].
    pub fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// `0.0.0.0` or `::`, which stands for every address of the node.
    pub fn unspecified(self) -> Address {
        match self {
            Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED).into(),
            Family::V6 => IpAddr::from(Ipv6Addr::UNSPECIFIED).into(),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Address {
        Address(match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.ip().fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.ip().fmt(f)
    }
}

/// Where a backend listens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The backend's own address, not an address of its Service.
    pub address: Address,
    /// In host order.
    pub port: u16,
}

impl Endpoint {
    /// `ip` may be IPv4-mapped; `port` is in host order.
    pub fn new(ip: IpAddr, port: u16) -> Endpoint {
        Endpoint { address: ip.into(), port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        SocketAddr::new(self.address.ip(), self.port).fmt(f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The protocols that Services, capture and policies distinguish. SCTP is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// A backend is chosen, and rules are applied, once for each connection.
    Tcp,
    /// The same is done for each connected socket, and for each datagram that is sent with an address.
    Udp,
}

impl Protocol {
    /// The protocol's number in an IP header.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }

    /// The inverse of [`Protocol::number`]. None: neither TCP nor UDP.
    pub fn from_number(number: u8) -> Option<Protocol> {
        [Protocol::Tcp, Protocol::Udp].into_iter().find(|protocol| protocol.number() == number)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        })
    }
}
