//! Services as nftables rules, written from the Services as kube-proxy's are.

use super::NODE;
use super::probe::Client;
use super::world::{Port, Service, World};
use crate::scratch::Scratch;
use sidestep_testkit::Namespace;
use sidestep_testkit::program::command;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// The rules of one namespace, which go when this is dropped.
pub struct Rules<'a>(&'a Namespace);

pub fn load<'a>(client: &Client<'a>, world: &World) -> Rules<'a> {
    let text = [false, true].map(|v6| table(world, v6, client.is_node)).concat();
    let scratch = Scratch::new();
    client.namespace.finish(command("nft").arg("-f").arg(scratch.file("rules", &text)));
    Rules(client.namespace)
}

impl Drop for Rules<'_> {
    fn drop(&mut self) {
        self.0.finish(command("nft").args(["flush", "ruleset"]));
    }
}

/// What each of a family's destinations becomes where packets begin, and what is rejected.
fn table(world: &World, v6: bool, is_node: bool) -> String {
    let (family, loopback) = if v6 { ("ip6", "::1") } else { ("ip", "127.0.0.0/8") };
    let (mut exchange, mut reject) = (String::new(), String::new());
    for (service, port) in world.services.iter().flat_map(|s| s.ports.iter().map(move |port| (s, port))) {
        let endpoints = service.endpoints_of(v6);
        for destination in destinations(service, port, v6, is_node) {
            let protocol = port.protocol().to_lowercase();
            let matched = format!("{family} daddr {} {protocol} dport {}", destination.0, destination.1);
            if endpoints.is_empty() {
                let how = if port.udp { "reject" } else { "reject with tcp reset" };
                writeln!(reject, "{matched} {how}").unwrap();
            } else {
                writeln!(exchange, "{matched} dnat to {}", one_of(&endpoints, port.target)).unwrap();
            }
        }
    }
    // A packet from the loopback that leaves the node needs an address that can be answered.
    let leave = format!("oifname != lo {family} saddr {loopback} masquerade");
    format!(
        "table {family} services {{\n\
         chain exchange {{ type nat hook output priority -100;\n{exchange}}}\n\
         chain refuse {{ type filter hook output priority 0;\n{reject}}}\n\
         chain leave {{ type nat hook postrouting priority 100;\n{leave}\n}}\n}}\n"
    )
}

/// Address and port, as the rules have them.
fn destinations(service: &Service, port: &Port, v6: bool, is_node: bool) -> Vec<(String, u16)> {
    let mut all: Vec<_> =
        service.addresses().filter(|ip| ip.is_ipv6() == v6).map(|ip| (ip.to_string(), port.number)).collect();
    let has_family = service.cluster.iter().any(|ip| ip.is_ipv6() == v6);
    let loopback = (is_node && !v6).then_some("127.0.0.0/8");
    if let Some(number) = port.node_port.filter(|_| has_family) {
        let node = [NODE[usize::from(v6)]].into_iter().chain(loopback);
        all.extend(node.map(|address| (address.to_string(), number)));
    }
    all
}

/// One endpoint at random.
fn one_of(endpoints: &[IpAddr], target: u16) -> String {
    if let [only] = endpoints {
        return SocketAddr::new(*only, target).to_string();
    }
    let choices: Vec<_> = endpoints.iter().enumerate().map(|(i, ip)| format!("{i} : {ip} . {target}")).collect();
    format!("numgen random mod {} map {{ {} }}", endpoints.len(), choices.join(", "))
}
