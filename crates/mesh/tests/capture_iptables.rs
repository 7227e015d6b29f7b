//! Compares the rules at the sockets with those of istio-iptables: for any rules and any connection both give the same answer.
//! The test reads the text of the nat table as the kernel would, without any knowledge of capture.

use crate::iptables::{Packet, Tables};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use sidestep_mesh::address::{Family, Protocol};
use sidestep_mesh::capture::inbound::Inbound;
use sidestep_mesh::capture::outbound::{NOBODY, Outbound};
use sidestep_mesh::capture::probe::Probe;
use sidestep_mesh::capture::rules::{Dns, DnsServers, InboundPorts, OwnerGroups, Ranges, Rules, WithoutProxy};
use sidestep_mesh::capture::verdict::{Action, Rule, Verdict};
use sidestep_testkit::istio_rules;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

// --- rules and connections: drawn from small sets, so that they often match ------------------------------------------

const PORTS: [u16; 9] = [53, 80, 443, 5432, 15001, 15006, 15008, 15053, 40000];
const IDS: [u32; 4] = [0, 7, 1337, 1338];
const INTERFACES: [&str; 4] = ["lo", "eth0", "net1", "k6t-eth0"];
const ADDRESSES: [&str; 15] = [
    "127.0.0.1",
    "127.0.0.6",
    "127.9.9.9",
    "10.0.0.53",
    "10.1.2.3",
    "10.1.9.9",
    "192.0.2.1",
    "::1",
    "::6",
    "fd00::53",
    "fd00:1::3",
    "fd00:1::9",
    "2001:db8::1",
    "fe80::1",
    "::7",
];

fn address() -> impl Strategy<Value = IpAddr> {
    select(&ADDRESSES[..]).prop_map(|text| text.parse().unwrap())
}

/// A range around an address that is probed; host bits may be set.
fn range() -> impl Strategy<Value = ipnet::IpNet> {
    (address(), prop_oneof![Just(255u8), Just(0), any::<u8>()]).prop_map(|(ip, length)| {
        let longest = if ip.is_ipv4() { 32 } else { 128 };
        ipnet::IpNet::new(ip, length.min(longest)).unwrap()
    })
}

fn some<T: Clone + std::fmt::Debug + 'static>(of: &'static [T]) -> impl Strategy<Value = Vec<T>> {
    subsequence(of, 0..=of.len().min(3)).prop_shuffle()
}

fn names() -> impl Strategy<Value = Vec<String>> {
    subsequence(&INTERFACES[1..], 0..=2).prop_map(|names| names.into_iter().map(String::from).collect())
}

fn ranges() -> impl Strategy<Value = Vec<ipnet::IpNet>> {
    prop::collection::vec(range(), 0..4)
}

fn dns() -> impl Strategy<Value = Option<Dns>> {
    let servers =
        prop_oneof![Just(DnsServers::All), prop::collection::vec(address(), 0..3).prop_map(DnsServers::These),];
    prop::option::of((select(&[15053u16, 53][..]), servers).prop_map(|(port, servers)| Dns { port, servers }))
}

fn owner_groups() -> impl Strategy<Value = OwnerGroups> {
    prop_oneof![
        3 => some(&IDS).prop_map(OwnerGroups::AllBut),
        1 => some(&IDS).prop_map(OwnerGroups::Only),
    ]
}

fn inbound_ports() -> impl Strategy<Value = InboundPorts> {
    prop_oneof![some(&PORTS).prop_map(InboundPorts::AllBut), some(&PORTS).prop_map(InboundPorts::Only)]
}

fn included_ranges() -> impl Strategy<Value = Ranges> {
    prop_oneof![Just(Ranges::All), ranges().prop_map(Ranges::These)]
}

fn rules() -> impl Strategy<Value = Rules> {
    let ports = (select(&[15001u16, 80][..]), select(&[15006u16, 443][..]), select(&[15008u16, 53, 80][..]));
    let owners = (some(&IDS), some(&IDS), owner_groups());
    let outbound = (included_ranges(), ranges(), some(&PORTS), some(&PORTS));
    let rest = (inbound_ports(), names(), names(), dns());
    (ports, owners, outbound, rest).prop_map(|(ports, owners, outbound, rest)| Rules {
        outbound_port: ports.0,
        inbound_port: ports.1,
        tunnel_port: ports.2,
        dns: rest.3,
        proxy_uids: owners.0,
        proxy_gids: owners.1,
        owner_groups: owners.2,
        include_outbound_ranges: outbound.0,
        exclude_outbound_ranges: outbound.1,
        include_outbound_ports: outbound.2,
        exclude_outbound_ports: outbound.3,
        inbound_ports: rest.0,
        exclude_interfaces: rest.1,
        virtual_interfaces: rest.2,
        without_proxy: WithoutProxy::Refuse,
    })
}

/// The source, if there is one, is of the destination's family.
fn outbound() -> impl Strategy<Value = Probe<'static>> {
    let protocol = prop_oneof![2 => Just(Protocol::Tcp), 1 => Just(Protocol::Udp)];
    let ids = || prop_oneof![4 => select(&IDS[..]), 1 => Just(NOBODY)];
    let interface = prop_oneof![1 => Just("lo"), 1 => select(&INTERFACES[..])];
    let sources = prop::option::of(address());
    (protocol, address(), select(&PORTS[..]), sources, interface, ids(), ids()).prop_map(
        |(protocol, ip, port, source, interface, uid, gid)| {
            let source = source.filter(|source| source.is_ipv4() == ip.is_ipv4());
            let destination = SocketAddr::new(ip, port);
            Probe::Outbound(Outbound { protocol, destination, source, interface, uid, gid })
        },
    )
}

/// Never over lo: inbound rules do not apply there.
fn inbound() -> impl Strategy<Value = Probe<'static>> {
    (select(&INTERFACES[1..]), address(), select(&PORTS[..]))
        .prop_map(|(interface, ip, port)| Probe::Inbound(Inbound { interface, destination: SocketAddr::new(ip, port) }))
}

fn probes() -> impl Strategy<Value = Vec<Probe<'static>>> {
    prop::collection::vec(prop_oneof![4 => outbound(), 1 => inbound()], 100)
}

// --- both sides -----------------------------------------------------------------------------------------------------

fn destination(probe: &Probe) -> SocketAddr {
    match probe {
        Probe::Outbound(probe) => probe.destination,
        Probe::Inbound(probe) => probe.destination,
    }
}

/// The kernel's source address for an unbound socket. Rules match none of these, except that ::6 is dialled from ::6.
fn chosen(destination: IpAddr) -> IpAddr {
    match Family::of(destination) {
        Family::V4 => "192.0.2.77".parse().unwrap(),
        Family::V6 if destination == "::6".parse::<IpAddr>().unwrap() => destination,
        Family::V6 => "fd00::77".parse().unwrap(),
    }
}

/// The first packet of the connection.
fn packet<'a>(probe: &Probe<'a>) -> Packet<'a> {
    match probe {
        Probe::Outbound(probe) => Packet {
            protocol: if probe.protocol == Protocol::Tcp { "tcp" } else { "udp" },
            source: probe.source.unwrap_or_else(|| chosen(probe.destination.ip())),
            destination: probe.destination,
            input: None,
            output: Some(probe.interface),
            owner: Some((probe.uid, probe.gid)),
        },
        Probe::Inbound(probe) => Packet {
            protocol: "tcp",
            source: probe.destination.ip(),
            destination: probe.destination,
            input: Some(probe.interface),
            output: None,
            owner: None,
        },
    }
}

struct Twins<'a> {
    rules: &'a Rules,
    tables: BTreeMap<Family, Tables>,
}

impl<'a> Twins<'a> {
    fn new(rules: &'a Rules) -> Twins<'a> {
        let tables = Family::BOTH.map(|family| (family, Tables::read(&istio_rules::nat(rules, family))));
        Twins { rules, tables: tables.into() }
    }

    fn verdict(&self, probe: &Probe) -> Verdict {
        let is_outbound = matches!(probe, Probe::Outbound(_));
        // If no inbound port is captured, istio-iptables leaves out the line for the tunnel's port.
        let is_tunnel = self.rules.inbound_ports == InboundPorts::Only(Vec::new())
            && destination(probe).port() == self.rules.tunnel_port;
        let (chain, none) = match is_outbound {
            true => ("OUTPUT", Rule::OutputNone),
            false if is_tunnel => ("PREROUTING", Rule::InputTunnel),
            false => ("PREROUTING", Rule::InputNone),
        };
        let found = self.tables[&Family::of(destination(probe).ip())].walk(chain, &packet(probe));
        let action = match found.redirect {
            None => Action::Bypass,
            Some(("ISTIO_REDIRECT", port)) => Action::Outbound(port),
            Some(("ISTIO_IN_REDIRECT", port)) => Action::Inbound(port),
            Some(("ISTIO_OUTPUT_DNS", port)) => Action::Dns(port),
            Some((chain, _)) => panic!("{chain} redirects"),
        };
        Verdict { action, rule: found.line.map_or(none, |line| self.rule(line)) }
    }

    /// The rule that a line implements, recognized by its text.
    fn rule(&self, line: &str) -> Rule {
        let has = |part: &str| line.contains(part);
        let of_proxy = self
            .rules
            .proxy_gids
            .iter()
            .any(|gid| line == format!("-A ISTIO_OUTPUT -m owner --gid-owner {gid} -j RETURN"));
        let virtual_interface = self.rules.virtual_interfaces.iter().any(|name| has(&format!("-i {name} ")));
        match () {
            () if has(" PREROUTING ") && virtual_interface => Rule::InputVirtual,
            () if has(" PREROUTING ") => Rule::InputInterface,
            () if line == format!("-A ISTIO_INBOUND -p tcp --dport {} -j RETURN", self.rules.tunnel_port) => {
                Rule::InputTunnel
            }
            () if has(" ISTIO_INBOUND ") => Rule::InputPort,
            () if has(" OUTPUT ") => Rule::OutputInterface,
            () if has(" -s ") => Rule::OutputPassthrough,
            () if has("--uid-owner") && has("ISTIO_IN_REDIRECT") => Rule::OutputUserToItself,
            () if has("! --uid-owner") => Rule::OutputOtherUser,
            () if has("--uid-owner") => Rule::OutputUser,
            () if has("--gid-owner") && has("ISTIO_IN_REDIRECT") => Rule::OutputGroupToItself,
            () if has("! --gid-owner") && has("-o lo") => Rule::OutputOtherGroup,
            () if of_proxy => Rule::OutputGroup,
            () if has("--gid-owner") || line == "-A ISTIO_OUTPUT -j RETURN" => Rule::OutputOwnerGroup,
            () if has("--dport") && has("-j RETURN") => Rule::OutputExcludedPort,
            () if has("ISTIO_OUTPUT_DNS") => Rule::OutputDns,
            () if has("-d 127.0.0.1/32 -j RETURN") || has("-d ::1/128 -j RETURN") => Rule::OutputLoopback,
            () if has("-j RETURN") => Rule::OutputExcludedRange,
            () if has("--dport") => Rule::OutputIncludedPort,
            () => Rule::OutputIncludedRange,
        }
    }
}

/// The same connection by an IPv6 socket, if it is an IPv4 connection.
fn mapped(probe: &Probe<'static>) -> Option<Probe<'static>> {
    let map = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => Some(IpAddr::V6(v4.to_ipv6_mapped())),
        IpAddr::V6(_) => None,
    };
    let destination = destination(probe);
    let destination = SocketAddr::new(map(destination.ip())?, destination.port());
    Some(match probe {
        Probe::Outbound(probe) => {
            Probe::Outbound(Outbound { destination, source: probe.source.and_then(map), ..*probe })
        }
        Probe::Inbound(probe) => Probe::Inbound(Inbound { destination, ..*probe }),
    })
}

proptest! {
    #![proptest_config(Config { cases: 2000, ..Config::default() })]

    #[test]
    fn both_say_the_same(rules in rules(), probes in probes()) {
        let twins = Twins::new(&rules);
        for probe in probes {
            let found = probe.verdict(&rules);
            prop_assert_eq!(found, twins.verdict(&probe), "{:?}", probe);
            if let Some(mapped) = mapped(&probe) {
                prop_assert_eq!(mapped.verdict(&rules), found, "{:?}", mapped);
            }
        }
    }
}

/// Otherwise the comparison would prove nothing for that rule.
#[test]
fn every_rule_decides_something() {
    let mut runner = TestRunner::deterministic();
    let mut decided: BTreeMap<Rule, u32> = BTreeMap::new();
    for _ in 0..500 {
        let rules = rules().new_tree(&mut runner).unwrap().current();
        for probe in probes().new_tree(&mut runner).unwrap().current() {
            *decided.entry(probe.verdict(&rules).rule).or_default() += 1;
        }
    }
    assert_eq!(decided.len(), 21, "{decided:?}");
    assert!(decided.values().all(|times| *times >= 50), "{decided:?}");
}
