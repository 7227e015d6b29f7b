//! For random policies, the tables, looked up as the programs do, give the model's answers.

use ipnet::IpNet;
use proptest::prelude::*;
use sidestep_mesh::address::Protocol;
use sidestep_mesh::object::Name;
use sidestep_mesh::policy::budget::TooMuch;
use sidestep_mesh::policy::compile::Compiler;
use sidestep_mesh::policy::evaluate::{Connection, Evaluation, Outcome, Who, evaluate, is_shared};
use sidestep_mesh::policy::identity::{self, Identities, Identity};
use sidestep_mesh::policy::rules::{
    Action, BySide, Direction, Labels, NamedPort, NamedPorts, Namespaces, OnDeny, Peer, Pods, Policy, Ports, Rule,
};
use sidestep_mesh::policy::selector::Selector;
use sidestep_mesh::policy::tables::{
    Compiled, DRY_ALLOW, DRY_DENY, DRY_NAMES_DENIED, Gate, ISOLATED, NAMES_DENIED, SAYS_ALLOW, SAYS_DENY, SAYS_DROP,
};
use std::net::IpAddr;

const NAMESPACES: [&str; 2] = ["shop", "bank"];
const RANGES: [&str; 9] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.1.2.3/32",
    "::/0",
    "fd00::/8",
    "fd00:1::/32",
    "fd00:1::3/128",
];
const ADDRESSES: [&str; 10] = [
    "10.1.2.3",
    "10.1.2.4",
    "10.1.9.9",
    "10.9.9.9",
    "192.0.2.1",
    "fd00:1::3",
    "2001:db8::1",
    // Shared addresses.
    "239.1.2.3",
    "fe80::3",
    "ff02::1",
];

fn labels() -> impl Strategy<Value = Labels> {
    let pair = (prop::sample::select(vec!["app", "tier"]), prop::sample::select(vec!["a", "b"]));
    prop::collection::btree_map(pair.clone().prop_map(|(k, _)| k.into()), pair.prop_map(|(_, v)| v.into()), 0..3)
}

fn range() -> impl Strategy<Value = Peer> {
    let nets: Vec<IpNet> = RANGES.iter().map(|text| text.parse().unwrap()).collect();
    let holes = nets.clone();
    (prop::sample::select(nets), prop::collection::vec(prop::sample::select(holes), 0..3)).prop_map(|(range, holes)| {
        Peer::Range { range, except: holes.into_iter().filter(|hole| range.contains(hole)).collect() }
    })
}

fn peer() -> impl Strategy<Value = Peer> {
    let named = prop::sample::select(NAMESPACES.to_vec()).prop_map(|name| Namespaces::Named(name.into()));
    let namespaces = prop_oneof![Just(Namespaces::Any), named];
    let pods =
        (namespaces, labels()).prop_map(|(namespaces, labels)| Peer::Pods(Pods { namespaces, labels: labels.into() }));
    prop_oneof![3 => pods, 3 => range(), 1 => Just(Peer::Node)]
}

fn ports() -> impl Strategy<Value = Ports> {
    let protocol = prop::sample::select(vec![Protocol::Tcp, Protocol::Udp]);
    let range = prop::sample::select(vec![(0, u16::MAX), (1, 1), (1, 3), (2, 2), (3, 5)]);
    (protocol, range).prop_map(|(protocol, (first, last))| Ports { protocol, first, last })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![2 => Just(Action::Allow), 1 => Just(Action::Deny)]
}

fn rule() -> impl Strategy<Value = Rule> {
    (action(), prop::collection::vec(peer(), 0..3), prop::collection::vec(ports(), 0..3))
        .prop_map(|(action, peers, ports)| Rule { action, peers, ports, named: Vec::new() })
}

fn policy() -> impl Strategy<Value = Policy> {
    let rules = || prop::collection::vec(rule(), 0..4);
    let on_deny = prop_oneof![Just(OnDeny::Refuse), Just(OnDeny::Drop)];
    (any::<bool>(), on_deny, prop::option::of(action()), prop::option::of(action()), rules(), rules()).prop_map(
        |(dry_run, on_deny, out, into, egress, ingress)| Policy {
            name: Name::new("shop", "policy"),
            select: Selector::default(),
            defaults: BySide { egress: out, ingress: into },
            dry_run,
            on_deny,
            requires_proxy: false,
            rules: BySide { egress, ingress },
        },
    )
}

/// The evaluation of crates/bpf/src/policy.h.
fn asked(compiled: &Compiled, gate: Gate, identity: u32, peer: IpAddr) -> Evaluation {
    let defaults = *compiled.defaults.at(gate.direction);
    let allowed = Evaluation { outcome: Outcome::Allowed, would_be_denied: false };
    if defaults & u16::from(ISOLATED) == 0 || (gate.direction == Direction::Ingress && identity == identity::NODE) {
        return allowed;
    }
    let said = u16::from(compiled.said(gate, identity, peer));
    let [allow, deny, drop, dry_allow, dry_deny] =
        [SAYS_ALLOW, SAYS_DENY, SAYS_DROP, DRY_ALLOW, DRY_DENY].map(u16::from);
    let is_hidden = |names: u16, allowed: u16| {
        identity == identity::UNKNOWN && is_shared(peer) && defaults & names != 0 && said & allowed == 0
    };
    let deciding = if said & deny != 0 { said } else { defaults };
    if said & deny != 0 || (said & allow == 0 && defaults & deny != 0) || is_hidden(NAMES_DENIED, allow) {
        let on_deny = if deciding & drop != 0 { OnDeny::Drop } else { OnDeny::Refuse };
        return Evaluation { outcome: Outcome::Denied(on_deny), would_be_denied: false };
    }
    let would_be_denied = said & dry_deny != 0
        || (said & (allow | dry_allow) == 0 && defaults & dry_deny != 0)
        || is_hidden(DRY_NAMES_DENIED, allow | dry_allow);
    Evaluation { would_be_denied, ..allowed }
}

/// Pods of every kind, and all other peers.
fn everybody(known: &mut Identities, kinds: &[(usize, Labels)]) -> Vec<(Option<Identity>, u32)> {
    let pods = kinds.iter().map(|(namespace, labels)| Identity::new(NAMESPACES[*namespace], labels));
    let mut all: Vec<_> = pods.map(|identity| (Some(identity.clone()), known.number(identity))).collect();
    all.extend([(None, identity::UNKNOWN), (None, identity::NODE)]);
    all
}

/// A policy as any tenant may write it: what it would take is not worked out to find that there is no room.
#[test]
fn far_too_much_is_told_at_once() {
    let began = std::time::Instant::now();
    let mut known = Identities::default();
    (0..3000).for_each(|n| _ = known.number(Identity::new("shop", &[("app".into(), format!("{n}").into())].into())));
    let range = |n: u32| IpNet::new(std::net::Ipv4Addr::from_bits(0x0a00_0000 + (n << 8)).into(), 24).unwrap();
    let ranges = |count| (0..count).map(|n| Peer::Range { range: range(n), except: Vec::new() }).collect::<Vec<_>>();
    let pods = |labels: Labels| Peer::Pods(Pods { namespaces: Namespaces::Any, labels: labels.into() });
    let everybody = pods(Labels::new());
    let nobody = pods([("app".into(), "none".into())].into());
    let port = |n: u32| NamedPort { protocol: Protocol::Tcp, name: format!("p{n}").into() };
    let names = (0..100_000).map(port).collect::<Vec<_>>();
    let almost_all = Ports { protocol: Protocol::Tcp, first: 1, last: 65_534 };
    let one = Ports { protocol: Protocol::Tcp, first: 80, last: 80 };
    let everything = "0.0.0.0/0".parse().unwrap();
    let holed = Peer::Range { range: everything, except: (0..20_000).map(range).collect() };
    for (peers, ports, named, why) in [
        (ranges(300), vec![almost_all], Vec::new(), TooMuch::Expanded),
        (ranges(17), vec![almost_all], Vec::new(), TooMuch::Entries("policy_ranges")),
        (ranges(60_000), vec![one], Vec::new(), TooMuch::Compared),
        (vec![holed], vec![one], Vec::new(), TooMuch::Compared),
        (vec![everybody.clone()], vec![almost_all], Vec::new(), TooMuch::Expanded),
        (Vec::new(), vec![almost_all; 10_000], Vec::new(), TooMuch::Expanded),
        // Few entries or none, but hundreds of millions of comparisons.
        (vec![everybody; 50_000], vec![one], Vec::new(), TooMuch::Looks),
        (vec![nobody], Vec::new(), names.clone(), TooMuch::Looks),
        (ranges(30), Vec::new(), names, TooMuch::Looks),
    ] {
        let direction = if named.is_empty() { Direction::Ingress } else { Direction::Egress };
        let rules = vec![Rule { action: Action::Allow, peers, ports, named }];
        let rules = match direction {
            Direction::Egress => BySide { egress: rules, ingress: Vec::new() },
            Direction::Ingress => BySide { egress: Vec::new(), ingress: rules },
        };
        let policy = Policy {
            name: Name::new("shop", "policy"),
            select: Selector::default(),
            defaults: BySide { egress: None, ingress: None },
            dry_run: false,
            on_deny: OnDeny::Refuse,
            requires_proxy: false,
            rules,
        };
        let compiled = Compiler::new(&known).compile(&[&policy], &NamedPorts::new());
        assert_eq!(compiled.entries.too_much, Some(why));
        assert!(compiled.entries.rules.is_empty() && compiled.entries.ranges.is_empty());
        assert_ne!(compiled.defaults.at(direction) & u16::from(ISOLATED), 0, "the pod is isolated all the same");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(120), "{:?}", began.elapsed());
}

proptest! {
    #[test]
    fn tables_say_what_the_model_says(
        policies in prop::collection::vec(policy(), 0..4),
        kinds in prop::collection::vec((0..2usize, labels()), 0..4),
    ) {
        let mut known = Identities::default();
        let everybody = everybody(&mut known, &kinds);
        let policies: Vec<&Policy> = policies.iter().collect();
        let own_ports = &NamedPorts::new();
        let compiled = Compiler::new(&known).compile(&policies, own_ports);
        for (identity, number) in &everybody {
            let who = match identity {
                Some(identity) => Who::Pod(identity),
                None if *number == identity::NODE => Who::Node,
                None => Who::Unknown,
            };
            for (address, direction) in ADDRESSES.iter().flat_map(|a| Direction::BOTH.map(|direction| (a, direction))) {
                let with_ports = [Protocol::Tcp, Protocol::Udp].into_iter().flat_map(|p| (1..7).map(move |n| (Some(p), n)));
                for (protocol, port) in with_ports.chain([(None, 0)]) {
                    let peer: IpAddr = address.parse().unwrap();
                    let said = evaluate(&policies, &Connection { direction, peer, who, protocol, port, own_ports });
                    let found = asked(&compiled, Gate { direction, protocol, port }, *number, peer);
                    prop_assert_eq!(found, said, "{:?} {} {:?} {:?} {}", who, address, direction, protocol, port);
                }
            }
        }
    }
}
