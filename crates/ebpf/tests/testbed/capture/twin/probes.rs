//! Probes: calls of the pod's programs and of its proxy, and connections from outside.

use super::site::{BEYOND, INTERFACES, NOWHERE, ON_LINK, OTHER, REFUSED, SCOPE, opposite};
use crate::numbers::Numbers;
use crate::sockets::mapped;
use ipnet::IpNet;
use sidestep_mesh::address::Protocol;
use sidestep_testkit::greeter::Owner;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Users and groups of probing sockets: programs, the proxy by user, by group and by both, a second proxy, other groups.
pub const OWNERS: [Owner; 8] =
    [(1000, 1000), (0, 0), (1337, 1337), (1337, 1000), (1000, 1337), (1400, 1000), (1000, 1500), (1000, 101)];
/// The first so many of them are used more often.
const OFTEN: usize = 2;

#[derive(Clone, Debug)]
pub struct Probe {
    pub from: From,
    pub protocol: Protocol,
    pub to: SocketAddr,
    pub source: Source,
    /// The interface to which the socket is bound by SO_BINDTODEVICE.
    pub device: Option<&'static str>,
    /// For UDP: whether the socket is connected, or the datagram is sent with an address.
    pub connected: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Pod(Owner),
    /// An incoming connection by that interface.
    Neighbour(&'static str),
}

/// What the socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    None,
    Address(IpAddr),
    /// A port that no other probe has. The address may be unspecified.
    Port(IpAddr, u16),
}

impl Source {
    /// The bound address, unless it is unspecified.
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Source::None => None,
            Source::Address(ip) | Source::Port(ip, _) => Some(ip).filter(|ip| !ip.to_canonical().is_unspecified()),
        }
    }
}

impl Probe {
    pub fn is_of_link(&self) -> bool {
        is_of_link(self.to.ip())
    }

    pub fn is_tcp(&self) -> bool {
        self.protocol == Protocol::Tcp
    }

    /// The outgoing interface of packets to the destination.
    pub fn interface(&self) -> &'static str {
        let ip = self.to.ip().to_canonical();
        if is_own(ip) { "lo" } else { way_to(ip) }
    }
}

fn is_of_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The interface of the network, or of the pod's own address.
fn way_to(ip: IpAddr) -> &'static str {
    let has = |address: &str| is(ip, address) || is(ip, &opposite(address));
    let found = INTERFACES.into_iter().find(|(_, addresses)| addresses.iter().any(|address| has(address)));
    match found {
        Some((name, _)) => name,
        None if is_own(ip) => "lo",
        None => "eth0",
    }
}

fn is(ip: IpAddr, text: &str) -> bool {
    text.parse() == Ok(ip)
}

/// Whether the pod itself has the address.
pub fn is_own(ip: IpAddr) -> bool {
    let is_loopback = ip.is_loopback() || ip.is_unspecified() || is(ip, "::6");
    is_loopback || INTERFACES.into_iter().any(|(_, own)| own.into_iter().any(|own| is(ip, own)))
}

/// Adds the scope of eth0 to a link-local address.
fn scoped(ip: IpAddr, port: u16) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if is_of_link(ip) => SocketAddrV6::new(v6, port, 0, SCOPE).into(),
        _ => SocketAddr::new(ip, port),
    }
}

/// Destinations of probes in one family.
fn destinations(v6: bool) -> Vec<IpAddr> {
    let family = usize::from(v6);
    let loopback = if v6 { ["::1", "::6", "::", "::1"] } else { ["127.0.0.1", "127.0.0.2", "127.0.0.6", "0.0.0.0"] };
    let own = INTERFACES.map(|(_, addresses)| addresses[family].to_string());
    let near = [INTERFACES[0], INTERFACES[1]].map(|(_, addresses)| opposite(addresses[family]));
    let beyond = BEYOND.map(|both| both[family].to_string());
    let all = loopback.map(String::from).into_iter().chain(own).chain(near).chain(beyond);
    let of_link = v6.then(|| opposite(ON_LINK));
    all.chain([OTHER[family].to_string()]).chain(of_link).map(|text| text.parse().unwrap()).collect()
}

/// Destinations without a route.
fn nowhere(v6: bool) -> Vec<IpAddr> {
    let of_kind =
        |(_, ranges): (_, [&str; 2])| ranges[usize::from(v6)].parse::<IpNet>().unwrap().hosts().nth(8).unwrap();
    let unknown = (!v6).then(|| "203.0.113.9".parse().unwrap());
    NOWHERE.into_iter().map(of_kind).chain(unknown).collect()
}

/// Ports that rules name, and others.
const PORTS: [u16; 12] = [53, 53, 80, 80, 443, 3306, 8080, 15001, 15006, 15008, 15020, REFUSED];
const UDP_PORTS: [u16; 5] = [53, 53, 53, 80, REFUSED];

/// Sources that a probe to there may be bound to; `port` for those with a port.
fn sources(to: IpAddr, port: u16) -> Vec<Source> {
    let of = |text: &str| -> IpAddr { text.parse().unwrap() };
    let v6 = to.is_ipv6();
    let [own, other, _] = INTERFACES.map(|(_, addresses)| of(addresses[usize::from(v6)]));
    let (passthrough, loopback, any) = if v6 { ("::6", "::1", "::") } else { ("127.0.0.6", "127.0.0.1", "0.0.0.0") };
    let mut all = vec![Source::None; 4];
    all.extend([of(passthrough), own, own, other].map(Source::Address));
    all.extend([Source::Port(own, port), Source::Port(of(any), port)]);
    // A loopback source gets no answers from elsewhere.
    if is_own(to) {
        all.push(Source::Address(of(loopback)));
    }
    all
}

/// Chooses probes at random.
pub struct Picker {
    pub numbers: Numbers,
    /// Counts up, so that each bound port is used once.
    next_port: u16,
}

const FIXED_PORTS: std::ops::Range<u16> = 40000..60000;

impl Picker {
    pub fn new(seed: u64) -> Picker {
        Picker { numbers: Numbers::new(seed), next_port: FIXED_PORTS.start }
    }

    pub fn calls(&mut self, count: usize) -> Vec<Probe> {
        (0..count).map(|_| self.call()).collect()
    }

    fn call(&mut self) -> Probe {
        let v6 = self.numbers.once_in(3);
        let somewhere = if self.numbers.once_in(15) { nowhere(v6) } else { destinations(v6) };
        let to = *self.numbers.one_of(&somewhere);
        let sources = sources(to, self.fixed_port());
        let numbers = &mut self.numbers;
        let udp = numbers.once_in(4);
        let port = if udp { *numbers.one_of(&UDP_PORTS) } else { *numbers.one_of(&PORTS) };
        let owners = if numbers.once_in(3) { &OWNERS[..OFTEN] } else { &OWNERS };
        let probe = Probe {
            from: From::Pod(*numbers.one_of(owners)),
            protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
            to: scoped(to, port),
            source: *numbers.one_of(&sources),
            device: numbers.once_in(50).then(|| way_to(to)),
            connected: numbers.once_in(2),
        };
        if to.is_ipv4() && numbers.once_in(4) { as_mapped(probe) } else { probe }
    }

    fn fixed_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port + 1 < FIXED_PORTS.end { port + 1 } else { FIXED_PORTS.start };
        port
    }
}

/// The same probe by an IPv6 socket with mapped addresses.
fn as_mapped(probe: Probe) -> Probe {
    let map = |ip: IpAddr| mapped(SocketAddr::new(ip, 0)).ip();
    let source = match probe.source {
        Source::None => Source::None,
        Source::Address(ip) => Source::Address(map(ip)),
        // An unspecified address covers both families.
        Source::Port(ip, port) if ip.is_unspecified() => Source::Port("::".parse().unwrap(), port),
        Source::Port(ip, port) => Source::Port(map(ip), port),
    };
    Probe { to: mapped(probe.to), source, ..probe }
}

/// Probes from outside, by every interface.
pub fn inbound() -> Vec<Probe> {
    let ports = [53, 80, 443, 3306, 8080, 15001, 15006, 15008, 15020, 15053, REFUSED];
    let mut all = Vec::new();
    for (interface, addresses) in INTERFACES {
        for ip in addresses.map(|text| text.parse::<IpAddr>().unwrap()) {
            let probe = |protocol, port| Probe {
                from: From::Neighbour(interface),
                protocol,
                to: SocketAddr::new(ip, port),
                source: Source::None,
                device: None,
                connected: true,
            };
            all.extend(ports.map(|port| probe(Protocol::Tcp, port)));
            all.extend([53, 80, REFUSED].map(|port| probe(Protocol::Udp, port)));
        }
    }
    all
}
