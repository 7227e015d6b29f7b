//! A host with two pods, between which each packet takes a way out of the host and back in.
//!
//! ```text
//!   client 10.8.1.2 ── pod0 ┐               ┌ wire0 ── wire0 ┐
//!                           ├ host: forwards ┤                ├ router
//!   server 10.8.2.2 ── pod1 ┘               └ wire1 ── wire1 ┘
//! ```
//!
//! Rules of the host send packets of the client's pod out by `wire0`, and those of the server's pod out by `wire1`; the router sends
//! them back in by the other one. So packets of both ends of a connection pass a device of one host, as those of one end do between
//! two hosts. Nothing here has a route outside.

use crate::{Namespace, unused_name};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The client's addresses.
pub const CLIENT: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 8, 1, 2), Ipv6Addr::new(0xfd08, 1, 0, 0, 0, 0, 0, 2));
/// A further address of the client.
pub const CLIENTS_OTHER: Ipv4Addr = Ipv4Addr::new(10, 8, 1, 3);
/// The server's addresses.
pub const SERVER: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 8, 2, 2), Ipv6Addr::new(0xfd08, 2, 0, 0, 0, 0, 0, 2));
/// The device of the host by which packets of the client's pod leave, and those to it arrive; and that for the server's pod.
pub const DEVICES: [&str; 2] = ["wire0", "wire1"];

/// The namespaces. They end when this is dropped.
pub struct Hairpin {
    /// Has [`DEVICES`], and forwards.
    pub host: Namespace,
    /// Sends back what the host sends out.
    pub router: Namespace,
    /// The pods of the client and of the server.
    pub pods: [Namespace; 2],
}

impl Default for Hairpin {
    fn default() -> Hairpin {
        Hairpin::new()
    }
}

impl Hairpin {
    /// Makes them. Needs root.
    pub fn new() -> Hairpin {
        let name = unused_name();
        let namespace = |role: &str| Namespace::new(&format!("{name}-{role}"));
        let it = Hairpin {
            host: namespace("host"),
            router: namespace("router"),
            pods: [namespace("pod0"), namespace("pod1")],
        };
        for namespace in [&it.host, &it.router, &it.pods[0], &it.pods[1]] {
            namespace.run(prepare);
        }
        for number in 0..2 {
            it.connect(number);
        }
        it.pods[0].ip(&format!("addr add {CLIENTS_OTHER}/24 dev eth0"));
        it.send_round();
        it
    }

    /// The cables of one pod: to the host, and from there to the router.
    fn connect(&self, number: usize) {
        let (pod, wire, net) = (format!("pod{number}"), DEVICES[number], number + 1);
        let inside = &self.pods[number];
        cable((&self.host, &pod), (inside, "eth0"));
        cable((&self.host, wire), (&self.router, wire));
        self.address(&self.host, &pod, &format!("10.8.{net}.1"), &format!("fd08:{net}::1"));
        self.address(inside, "eth0", &format!("10.8.{net}.2"), &format!("fd08:{net}::2"));
        self.address(&self.host, wire, &format!("10.9.{net}.1"), &format!("fd09:{net}::1"));
        self.address(&self.router, wire, &format!("10.9.{net}.2"), &format!("fd09:{net}::2"));
        for (family, host) in [("-4", format!("10.8.{net}.1")), ("-6", format!("fd08:{net}::1"))] {
            inside.ip(&format!("{family} route add default via {host}"));
        }
    }

    fn address(&self, namespace: &Namespace, device: &str, v4: &str, v6: &str) {
        namespace.ip(&format!("addr add {v4}/24 dev {device}"));
        namespace.ip(&format!("-6 addr add {v6}/64 dev {device} nodad"));
    }

    /// From a pod to the router by the pod's wire, and from there to the other pod by the other wire.
    fn send_round(&self) {
        for (from, to) in [(1, 2), (2, 1)] {
            let (pod, table) = (from - 1, 100 + from);
            for (family, net, hop, back) in [
                ("-4", format!("10.8.{to}.0/24"), format!("10.9.{from}.2"), format!("10.9.{to}.1")),
                ("-6", format!("fd08:{to}::/64"), format!("fd09:{from}::2"), format!("fd09:{to}::1")),
            ] {
                self.host.ip(&format!("{family} rule add iif pod{pod} lookup {table}"));
                self.host.ip(&format!("{family} route add {net} via {hop} table {table}"));
                self.router.ip(&format!("{family} route add {net} via {back}"));
            }
        }
    }
}

fn cable(one: (&Namespace, &str), other: (&Namespace, &str)) {
    one.0.ip(&format!("link add {} type veth peer name {} netns {}", one.1, other.1, other.0.name()));
    for (namespace, device) in [one, other] {
        namespace.ip(&format!("link set {device} up"));
    }
}

/// The thread's namespace, before it has devices. Packets arrive by another way than the one by which they would be answered.
/// Link-local addresses can be used at once, without a search for duplicates.
fn prepare() {
    for (name, value) in [
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
    ] {
        std::fs::write(format!("/proc/sys/net/{name}"), value).expect("a setting of the namespace");
    }
}
