//! Every pod calls every other one, under many policies, and the outcome is the model's.

use super::probe::{Family, Seen, seen, unconnected};
use super::random::{Numbers, policies};
use super::world::{PORTS, World, who};
use sidestep_mesh::address::Protocol::{self, Tcp, Udp};
use sidestep_mesh::object::Name;
use sidestep_mesh::policy::evaluate::{Connection, Evaluation, Outcome, evaluate};
use sidestep_mesh::policy::rules::{Direction, NamedPorts, OnDeny};
use std::net::SocketAddr;

const WOULD_DENY: [&str; 2] = ["policy-would-deny-out", "policy-would-deny-in"];
const SEEDS: std::ops::Range<u64> = 1..13;

/// The model's evaluation for both ends.
fn evaluations(world: &World, [client, server]: [&Name; 2], to: SocketAddr, protocol: Protocol) -> [Evaluation; 2] {
    let v6 = to.ip().to_canonical().is_ipv6();
    let both = [(client, server, Direction::Egress), (server, client, Direction::Ingress)];
    both.map(|(pod, peer, direction)| {
        let identity = world.identity(peer);
        let (peer, who) = (world.address(peer, v6), who(&identity));
        evaluate(
            &world.policies_of(pod),
            &Connection {
                direction,
                peer,
                who,
                protocol: Some(protocol),
                port: to.port(),
                own_ports: &NamedPorts::new(),
            },
        )
    })
}

fn expected([out, into]: [Evaluation; 2]) -> Seen {
    match (out.outcome, into.outcome) {
        (Outcome::Denied(OnDeny::Refuse), _) => Seen::Refused,
        (Outcome::Denied(OnDeny::Drop), _) => Seen::Unreachable,
        (_, Outcome::Allowed) => Seen::Reached,
        (_, Outcome::Denied(OnDeny::Refuse)) => Seen::Refused,
        (_, Outcome::Denied(OnDeny::Drop)) => Seen::Silence,
    }
}

#[derive(Default)]
struct Tally {
    seen: [usize; 4],
    would: [u64; 2],
}

fn compare(world: &World, names: &[Name], tally: &mut Tally, text: &str) {
    let pairs = names.iter().flat_map(|client| names.iter().map(move |server| [client, server]));
    for pair in pairs.filter(|[client, server]| client != server) {
        for (family, port) in Family::ALL.into_iter().flat_map(|family| PORTS.map(|port| (family, port))) {
            for protocol in [Tcp, Udp] {
                let to = world.place(pair[1], family, port);
                let said = evaluations(world, pair, to, protocol);
                let found = world.call(pair[0], to, protocol);
                let what = format!("{} to {} {protocol} {to}\n{said:?}\n{text}", pair[0], pair[1]);
                assert_eq!(found, expected(said), "{what}");
                tally.seen[found as usize] += 1;
                tally.would[0] += u64::from(said[0].would_be_denied);
                // The receiver sees only what the sender may send.
                let arrives = said[0].outcome == Outcome::Allowed;
                tally.would[1] += u64::from(arrives && said[1].would_be_denied);
                assert_eq!(world.counted(WOULD_DENY), tally.would, "what would be denied is counted: {what}");
            }
        }
    }
}

#[test]
fn everybody_meets_what_the_model_says() {
    let mut world = World::new();
    let names = [
        world.pod("shop", "web", Some("{app: web, tier: a}")),
        world.pod("shop", "db", Some("{app: db, tier: b, pod-template-hash: 5f7c}")),
        world.pod("bank", "web", Some("{app: web}")),
        world.pod("bank", "stranger", None),
    ];
    let (mut tally, mut text) = (Tally::default(), String::new());
    compare(&world, &names, &mut tally, "no policy");
    for seed in SEEDS {
        world.forget_policies();
        text = policies(&mut Numbers(seed));
        world.tell(&text);
        world.settle();
        compare(&world, &names, &mut tally, &format!("seed {seed}\n{text}"));
    }
    println!("{:?}", tally.seen);
    assert!(tally.seen.iter().all(|count| *count > 20), "too little was seen: {:?}\n{text}", tally.seen);
    world.forget_policies();
    world.settle();
    assert!(world.policies.namespaces().is_empty());
    compare(&world, &names, &mut tally, "no policy again");
}

/// An unconnected socket only learns of refusals by its own pod's policies.
#[test]
fn datagrams_with_addresses_meet_the_same() {
    let mut world = World::new();
    let names = [
        world.pod("shop", "web", Some("{app: web, tier: a}")),
        world.pod("shop", "db", Some("{app: db, tier: b}")),
        world.pod("bank", "web", Some("{app: web}")),
    ];
    for seed in SEEDS.take(6) {
        world.forget_policies();
        let text = policies(&mut Numbers(1000 + seed));
        world.tell(&text);
        world.settle();
        let pairs = names.iter().flat_map(|client| names.iter().map(move |server| [client, server]));
        for pair in pairs.filter(|[client, server]| client != server) {
            for family in Family::ALL {
                let to = world.place(pair[1], family, PORTS[0]);
                let said = evaluations(&world, pair, to, Udp);
                let expected = match (said[0].outcome, expected(said)) {
                    (Outcome::Allowed, Seen::Refused) => Seen::Silence,
                    (_, other) => other,
                };
                let found = world.pods[pair[0]].namespace.run(|| seen(unconnected(to)));
                assert_eq!(found, expected, "seed {seed}: {} to {} {to}\n{said:?}\n{text}", pair[0], pair[1]);
            }
        }
    }
}
