//! One of the twins: a pod with its programs and its proxy, and its surroundings. Both twins have the same addresses, in separate
//! namespaces.

use super::super::world::{INBOUND, OUTBOUND, any};
use super::datagrams::Datagrams;
use crate::sockets::{at, until};
use sidestep_testkit::Namespace;
use sidestep_testkit::greeter::{Greeter, PROXY, ROOT};
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};

pub const DNS: u16 = 15053;
/// TCP ports of programs in the pod and around it; some have no special meaning.
pub const PORTS: [u16; 7] = [53, 80, 443, 3306, 8080, 15008, 15020];
/// UDP ports of the same programs.
pub const UDP_PORTS: [u16; 2] = [53, 80];
/// A port without a listener.
pub const REFUSED: u16 = 9999;

/// Interfaces, and the pod's addresses there. The neighbour's addresses end in 1 instead.
pub const INTERFACES: [(&str, [&str; 2]); 3] = [
    ("eth0", ["10.244.0.2", "fd00:244::2"]),
    ("eth1", ["10.245.0.2", "fd00:245::2"]),
    ("tap0", ["10.246.0.2", "fd00:246::2"]),
];
/// Further addresses of the pod's loopback.
pub const LOOPBACK: [&str; 5] = ["127.0.0.1", "127.0.0.2", "127.0.0.6", "::1", "::6"];
/// The link-local address of eth0; SCOPE is the interface's index in both pods.
pub const ON_LINK: &str = "fe80::2";
pub const SCOPE: u32 = 2;
/// Another pod on the network of eth0.
pub const OTHER: [&str; 2] = ["10.244.0.9", "fd00:244::9"];
/// Hosts beyond a router: two Services, of which one has a range of its own, another address, and two resolvers.
pub const BEYOND: [[&str; 2]; 5] = [
    ["10.96.0.10", "fd00:96::10"],
    ["10.96.7.7", "fd00:96::7:7"],
    ["10.100.0.1", "fd00:100::1"],
    ["10.96.0.53", "fd00:96::53"],
    ["10.96.0.54", "fd00:96::54"],
];
/// Routes that lead nowhere, one of each kind.
pub const NOWHERE: [(&str, [&str; 2]); 3] = [
    ("unreachable", ["198.18.0.0/24", "2001:db8:0::/48"]),
    ("prohibit", ["198.18.1.0/24", "2001:db8:1::/48"]),
    ("blackhole", ["198.18.2.0/24", "2001:db8:2::/48"]),
];

/// ICMP errors must not be rate-limited.
const SETTINGS: [(&str, &str); 2] =
    [("/proc/sys/net/ipv4/icmp_ratelimit", "0"), ("/proc/sys/net/ipv6/icmp/ratelimit", "0")];

pub struct Site {
    pub pod: Namespace,
    pub neighbour: Namespace,
    _greeters: Vec<Greeter>,
    _datagrams: Vec<Datagrams>,
}

impl Site {
    pub fn new(name: &str) -> Site {
        let name = format!("st{}-{name}", std::process::id());
        let pod = Namespace::new(&name);
        let neighbour = Namespace::new(&format!("{name}-n"));
        for namespace in [&pod, &neighbour] {
            namespace.run(|| SETTINGS.iter().for_each(|(name, value)| fs::write(name, value).unwrap()));
        }
        connect(&pod, &neighbour);
        routes(&pod);
        let datagrams = vec![
            pod.run(|| Datagrams::new(PROXY, &ends(&["127.0.0.1", "::1"], &[DNS]))),
            pod.run(|| Datagrams::new(ROOT, &ends(&pod_addresses(), &UDP_PORTS))),
            neighbour.run(|| Datagrams::new(ROOT, &ends(&neighbour_addresses(), &UDP_PORTS))),
        ];
        let programs: Vec<_> = PORTS.into_iter().flat_map(any).collect();
        let proxys = [any(OUTBOUND).to_vec(), any(INBOUND).to_vec(), ends(&["127.0.0.1", "::1"], &[DNS])].concat();
        let greeters = vec![
            pod.run(|| Greeter::here(PROXY, &proxys)),
            pod.run(|| Greeter::here(ROOT, &programs)),
            neighbour.run(|| Greeter::here(ROOT, &programs)),
        ];
        let site = Site { pod, neighbour, _greeters: greeters, _datagrams: datagrams };
        site.wait_for_links();
        site
    }

    /// Waits until both ends of each link know the other.
    fn wait_for_links(&self) {
        for address in INTERFACES.into_iter().flat_map(|(_, addresses)| addresses) {
            for (from, to) in [(&self.neighbour, address.to_string()), (&self.pod, opposite(address))] {
                until(&to, || from.run(|| TcpStream::connect(at(&to, PORTS[0])).is_ok()));
            }
        }
    }

    /// Sets the range of ephemeral ports: conntrack remembers connections of earlier rules.
    pub fn take_ports(&self, from: u16, to: u16) {
        for namespace in [&self.pod, &self.neighbour] {
            let range = format!("{from} {to}");
            namespace.run(|| fs::write("/proc/sys/net/ipv4/ip_local_port_range", &range).unwrap());
        }
    }
}

fn connect(pod: &Namespace, neighbour: &Namespace) {
    for (interface, addresses) in INTERFACES {
        pod.ip(&format!("link add {interface} type veth peer name {interface} netns {}", neighbour.name()));
        for (address, length) in addresses.into_iter().zip([24, 64]) {
            pod.ip(&format!("addr add {address}/{length} dev {interface} nodad"));
            neighbour.ip(&format!("addr add {}/{length} dev {interface} nodad", opposite(address)));
        }
        pod.ip(&format!("link set {interface} addrgenmode none"));
        neighbour.ip(&format!("link set {interface} addrgenmode none"));
        pod.ip(&format!("link set {interface} up"));
        neighbour.ip(&format!("link set {interface} up"));
    }
    pod.ip(&format!("addr add {ON_LINK}/64 dev eth0 nodad"));
    neighbour.ip(&format!("addr add {}/64 dev eth0 nodad", opposite(ON_LINK)));
    for (address, length) in OTHER.into_iter().zip([24, 64]) {
        neighbour.ip(&format!("addr add {address}/{length} dev eth0 nodad"));
    }
    for (address, length) in BEYOND.into_iter().flat_map(|both| both.into_iter().zip([32, 128])) {
        neighbour.ip(&format!("addr add {address}/{length} dev lo nodad"));
    }
    // Istio adds this address.
    pod.ip("-6 addr add ::6/128 dev lo nodad");
}

/// There is no IPv4 default route.
fn routes(pod: &Namespace) {
    for range in ["10.96.0.0/16", "10.100.0.0/16"] {
        pod.ip(&format!("route add {range} via {}", opposite(INTERFACES[0].1[0])));
    }
    for range in ["fd00:96::/32", "fd00:100::/32"] {
        pod.ip(&format!("-6 route add {range} via {}", opposite(INTERFACES[0].1[1])));
    }
    pod.ip(&format!("-6 route add default via {}", opposite(INTERFACES[0].1[1])));
    for (kind, ranges) in NOWHERE {
        pod.ip(&format!("route add {kind} {}", ranges[0]));
        pod.ip(&format!("-6 route add {kind} {}", ranges[1]));
    }
}

/// The neighbour's address on the same network.
pub fn opposite(address: &str) -> String {
    format!("{}1", &address[..address.len() - 1])
}

pub fn pod_addresses() -> Vec<&'static str> {
    LOOPBACK.into_iter().chain(INTERFACES.into_iter().flat_map(|(_, addresses)| addresses)).collect()
}

fn neighbour_addresses() -> Vec<String> {
    let near = INTERFACES.into_iter().flat_map(|(_, addresses)| addresses).map(opposite);
    near.chain(OTHER.into_iter().chain(BEYOND.into_iter().flatten()).map(String::from)).collect()
}

fn ends(addresses: &[impl AsRef<str>], ports: &[u16]) -> Vec<SocketAddr> {
    let of = |address: &str| -> IpAddr { address.parse().unwrap() };
    addresses.iter().flat_map(|ip| ports.iter().map(move |port| (of(ip.as_ref()), *port).into())).collect()
}
