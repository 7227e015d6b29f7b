//! The rules of each round: first one set for each of Istio's options, then random ones.

use crate::numbers::Numbers;
use ipnet::IpNet;
use sidestep_mesh::capture::defaults;
use sidestep_mesh::capture::rules::{Dns, DnsServers, InboundPorts, OwnerGroups, Ranges, Rules};

pub const NAMES: [&str; 16] = [
    "injected",
    "dns",
    "dns of all servers",
    "owner groups",
    "excluded owner groups",
    "owner groups and dns",
    "included ranges",
    "excluded ranges",
    "loopback included",
    "excluded interface",
    "ports",
    "ports alone",
    "inbound list",
    "several owners and dns",
    "virtual interface",
    "everything",
];

fn ranges(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn dns(servers: &[&str]) -> Option<Dns> {
    let servers = servers.iter().map(|text| text.parse().unwrap()).collect();
    Some(Dns { port: defaults::DNS_PORT, servers: DnsServers::These(servers) })
}

fn all_dns() -> Option<Dns> {
    Some(Dns { port: defaults::DNS_PORT, servers: DnsServers::All })
}

const SERVERS: [&str; 2] = ["10.96.0.53", "fd00:96::53"];

pub fn named(name: &str) -> Rules {
    let mut rules = defaults::rules();
    match name {
        "injected" => {}
        "dns" => rules.dns = dns(&SERVERS),
        "dns of all servers" => rules.dns = all_dns(),
        "owner groups" => rules.owner_groups = OwnerGroups::Only(vec![101, 1000]),
        "excluded owner groups" => rules.owner_groups = OwnerGroups::AllBut(vec![101, 0]),
        "owner groups and dns" => {
            rules.owner_groups = OwnerGroups::Only(vec![101]);
            rules.dns = all_dns();
        }
        "included ranges" => {
            rules.include_outbound_ranges = Ranges::These(ranges(&["10.96.0.0/16", "fd00:96::/108"]));
        }
        "excluded ranges" => {
            let excluded = ["10.96.7.0/24", "10.244.0.0/16", "fd00:96::7:0/112", "fd00:244::/64"];
            rules.exclude_outbound_ranges = ranges(&excluded);
        }
        "loopback included" => {
            rules.include_outbound_ranges =
                Ranges::These(ranges(&["127.0.0.0/8", "10.0.0.0/8", "::1/128", "fd00::/8"]));
        }
        "excluded interface" => rules.exclude_interfaces = vec!["eth1".into(), "net2".into()],
        "ports" => {
            rules.exclude_outbound_ports = vec![3306, 8080];
            rules.inbound_ports = InboundPorts::AllBut([&defaults::OWN_PORTS[..], &[443]].concat());
        }
        "ports alone" => {
            rules.include_outbound_ranges = Ranges::These(Vec::new());
            rules.include_outbound_ports = vec![80, 443];
            rules.exclude_outbound_ports = vec![443];
            rules.inbound_ports = InboundPorts::Only(Vec::new());
        }
        "inbound list" => rules.inbound_ports = InboundPorts::Only(vec![80, 8080]),
        "several owners and dns" => {
            (rules.proxy_uids, rules.proxy_gids) = (vec![1337, 1400], vec![1337, 1500]);
            rules.dns = dns(&["10.96.0.53", "10.96.0.54", "127.0.0.2", "fd00:96::53", "fd00:244::2"]);
        }
        "virtual interface" => rules.virtual_interfaces = vec!["tap0".into()],
        "everything" => {
            (rules.proxy_uids, rules.proxy_gids) = (vec![1337, 1400], vec![1337, 1500]);
            rules.include_outbound_ranges = Ranges::These(ranges(&["10.96.0.0/16", "fd00:96::/64"]));
            rules.exclude_outbound_ranges = ranges(&["10.96.7.0/24", "fd00:96::7:0/112"]);
            rules.include_outbound_ports = vec![443, 8080];
            rules.exclude_outbound_ports = vec![3306];
            rules.owner_groups = OwnerGroups::AllBut(vec![101]);
            rules.exclude_interfaces = vec!["eth1".into()];
            rules.virtual_interfaces = vec!["tap0".into()];
            rules.dns = dns(&SERVERS);
        }
        other => panic!("{other}"),
    }
    rules
}

/// Random rules about the addresses and ports of the probes.
pub fn random(numbers: &mut Numbers) -> Rules {
    const PORTS: [u16; 8] = [53, 80, 443, 3306, 8080, 15001, 15008, 15020];
    const RANGES: [&str; 14] = [
        "0.0.0.0/0",
        "10.96.0.0/16",
        "10.96.7.0/24",
        "10.96.0.53/32",
        "10.244.0.0/16",
        "10.0.0.0/8",
        "127.0.0.0/8",
        "127.0.0.2/32",
        "::/0",
        "fd00:96::/64",
        "fd00:96::7:0/112",
        "fd00:244::2/128",
        "fd00::/8",
        "::1/128",
    ];
    const SERVERS: [&str; 6] = ["10.96.0.53", "10.96.0.54", "127.0.0.1", "10.244.0.2", "fd00:96::53", "::1"];
    let mut rules = defaults::rules();
    rules.dns = match numbers.below(3) {
        0 => None,
        1 => all_dns(),
        _ => dns(&numbers.some_of(&SERVERS)),
    };
    rules.proxy_uids.extend(numbers.some_of(&[1400]));
    rules.proxy_gids.extend(numbers.some_of(&[1500]));
    let groups = numbers.some_of(&[101, 1000, 0, 1500]);
    rules.owner_groups = if numbers.once_in(4) { OwnerGroups::Only(groups) } else { OwnerGroups::AllBut(groups) };
    if numbers.once_in(2) {
        rules.include_outbound_ranges = Ranges::These(ranges(&numbers.some_of(&RANGES)));
    }
    rules.exclude_outbound_ranges = ranges(&numbers.some_of(&RANGES));
    if numbers.once_in(2) {
        rules.exclude_outbound_ranges.retain(|range| range.prefix_len() > 16);
    }
    rules.include_outbound_ports = numbers.some_of(&PORTS);
    rules.exclude_outbound_ports = numbers.some_of(&PORTS);
    let inbound = numbers.some_of(&PORTS);
    rules.inbound_ports = if numbers.once_in(3) { InboundPorts::Only(inbound) } else { InboundPorts::AllBut(inbound) };
    rules.exclude_interfaces = numbers.some_of(&["eth1".to_string(), "lo".to_string()]);
    rules.virtual_interfaces = numbers.some_of(&["tap0".to_string()]);
    rules
}
