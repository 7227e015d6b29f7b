//! Random sets of connections (worlds) that the kernel permits, offered in random order: each pair must be one connection.
//! Addresses and ports come from small pools, so that tuples mirror each other by chance.

use proptest::prelude::*;
use sidestep_abi::Reason;
use sidestep_broker::addr::Endpoint;
use sidestep_broker::matching::{Matcher, Offer, Ticket, Verdict};
use sidestep_broker::proof::{AddressSpace, SocketFacts};
use sidestep_broker::trust::{Trust, Who};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;

const HOSTS: [&str; 5] = ["127.0.0.1", "10.0.0.1", "10.0.0.2", "[::1]", "[fd00::1]"];

fn endpoint(host: usize, port: u16) -> Endpoint {
    format!("{}:{port}", HOSTS[host]).parse::<SocketAddr>().expect("an address").into()
}

/// One connection of a world: the identities of its two ends, or of the one end on this host.
#[derive(Clone, Debug)]
enum Connection {
    Both(SocketFacts, SocketFacts),
    One(SocketFacts),
}

fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    (0..HOSTS.len(), 1..4u16).prop_map(|(host, port)| endpoint(host, port))
}

fn any_space() -> impl Strategy<Value = AddressSpace> {
    (1..3u64, 0..2u32).prop_map(|(netns, device)| AddressSpace { netns, device, pod: None })
}

/// `translated`: REDIRECT or DNAT from the called address to another one on the same host.
fn any_connection() -> impl Strategy<Value = Connection> {
    let ends = (any_endpoint(), any_endpoint(), any_endpoint());
    (any_space(), ends, any::<bool>(), any::<bool>(), 0..4u8).prop_map(
        |(space, (caller, called, lands), translated, tracked, missing)| {
            let lands = if translated { lands } else { called };
            let facts =
                |local, remote, original: Option<Endpoint>| SocketFacts { cookie: 0, space, local, remote, original };
            // Connection tracking tells both ends the called address. Without connection tracking there is no translation.
            let original = Some(called).filter(|_| tracked || lands != called);
            let (a, b) = (facts(caller, called, original), facts(lands, caller, original));
            match missing {
                0 => Connection::One(a),
                1 => Connection::One(b),
                _ => Connection::Both(a, b),
            }
        },
    )
}

/// Keeps the connections that can exist at once: a tuple names one socket in its space, a socket is not its own peer, and a
/// connection with one end elsewhere does not look like a local one.
fn possible(connections: Vec<Connection>) -> Vec<Connection> {
    let (mut sockets, mut calls) = (HashSet::new(), HashSet::new());
    let mut keep = |c: &Connection| {
        let ends: Vec<_> = match c {
            Connection::Both(a, b) => vec![*a, *b],
            Connection::One(a) => vec![*a],
        };
        // Each call occupies two tuples: the caller's, and the one at the called address.
        let called = |i: &SocketFacts| i.original.filter(|o| *o != i.remote).unwrap_or(i.local);
        let views: Vec<_> = match c {
            Connection::Both(a, _) => vec![(a.space, a.local, a.remote)],
            Connection::One(a) => vec![(a.space, called(a), a.remote), (a.space, a.remote, called(a))],
        };
        let names: HashSet<_> = ends.iter().map(|i| (i.space, i.local, i.remote)).collect();
        let possible = names.len() == ends.len()
            && ends.iter().all(|i| i.local != i.remote)
            && names.is_disjoint(&sockets)
            && views.iter().all(|&(d, x, y)| !calls.contains(&(d, x, y)) && !calls.contains(&(d, y, x)));
        if possible {
            sockets.extend(names);
            calls.extend(views);
        }
        possible
    };
    connections.into_iter().filter(|c| keep(c)).collect()
}

/// The offers of a world in random order, and the connection of each offer.
fn offers_of(world: &[Connection], order: &[usize]) -> (Vec<Offer>, HashMap<u64, usize>) {
    let (mut offers, mut truth) = (Vec::new(), HashMap::new());
    for (n, connection) in world.iter().enumerate() {
        let ends = match connection {
            Connection::Both(a, b) => vec![*a, *b],
            Connection::One(a) => vec![*a],
        };
        for mut facts in ends {
            facts.cookie = offers.len() as u64 + 1;
            truth.insert(facts.cookie, n);
            let ticket = Ticket { member: facts.cookie % 3, offer: facts.cookie };
            offers.push(Offer { ticket, facts, who: Who::user(1000), passive: false });
        }
    }
    for (i, &j) in order.iter().enumerate().take(offers.len()) {
        let with = j % offers.len();
        offers.swap(i, with);
    }
    (offers, truth)
}

fn matcher(across: bool) -> Matcher {
    Matcher::new(Trust::of_users(1000, None, &[]), across)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn only_the_two_ends_of_one_connection_are_paired_and_all_of_them(
        connections in prop::collection::vec(any_connection(), 1..24),
        order in prop::collection::vec(any::<usize>(), 48),
    ) {
        let world = possible(connections);
        let (offers, truth) = offers_of(&world, &order);
        let mut matcher = matcher(false);
        let mut paired = HashSet::new();
        let mut to_offer: VecDeque<_> = offers.iter().cloned().collect();
        while let Some(offer) = to_offer.pop_front() {
            match matcher.offer(offer.clone()) {
                Verdict::Waits => {}
                Verdict::Anew(others) => to_offer.extend(others),
                Verdict::Pair(other) => {
                    let (here, there) = (truth[&offer.facts.cookie], truth[&other.facts.cookie]);
                    prop_assert_eq!(here, there, "{:?} is not the peer of {:?}", offer, other);
                    paired.insert(here);
                }
                Verdict::Strangers(other) => prop_assert!(false, "{:?} is no stranger of its own user", other),
                Verdict::Refused(reason, others) => prop_assert!(false, "{:?} {:?}", reason, others),
            }
        }
        let complete = world.iter().filter(|c| matches!(c, Connection::Both(..))).count();
        prop_assert_eq!(paired.len(), complete);
        prop_assert_eq!(matcher.len(), offers.len() - 2 * complete);
    }

    #[test]
    fn whatever_is_offered_the_index_stays_consistent(
        identities in prop::collection::vec((any_space(), any_endpoint(), any_endpoint(), prop::option::of(any_endpoint()), 1..30u64), 1..60),
        withdrawn in prop::collection::vec(any::<prop::sample::Index>(), 20),
        across in any::<bool>(),
    ) {
        let mut matcher = matcher(across);
        let mut waiting = HashSet::new();
        for (n, (space, local, remote, original, cookie)) in identities.iter().copied().enumerate() {
            let ticket = Ticket { member: n as u64 % 4, offer: n as u64 };
            let facts = SocketFacts { cookie, space, local, remote, original };
            match matcher.offer(Offer { ticket, facts, who: Who::user(1000), passive: false }) {
                Verdict::Waits => prop_assert!(waiting.insert(ticket)),
                Verdict::Anew(others) => {
                    prop_assert!(others.iter().all(|o| waiting.remove(&o.ticket)) && waiting.insert(ticket));
                }
                Verdict::Pair(other) => {
                    prop_assert!(waiting.remove(&other.ticket));
                    let near = other.facts.space == space;
                    prop_assert!(near || (across && !local.is_loopback() && !remote.is_loopback()));
                }
                Verdict::Strangers(other) => prop_assert!(false, "{:?} is no stranger of its own user", other),
                Verdict::Refused(_, others) => prop_assert!(others.iter().all(|t| waiting.remove(t))),
            }
        }
        for index in withdrawn {
            let ticket = Ticket { member: index.index(4) as u64, offer: index.index(identities.len()) as u64 };
            prop_assert_eq!(matcher.withdraw(ticket).is_some(), waiting.remove(&ticket));
        }
        prop_assert_eq!(matcher.len(), waiting.len());
        for member in 0..4 {
            prop_assert_eq!(matcher.waiting_of(member), waiting.iter().filter(|t| t.member == member).count());
            matcher.remove_member(member);
        }
        prop_assert!(matcher.is_empty());
    }
}

/// An offer with its own cookie; the first two hosts are not loopback.
fn offer(n: u64, netns: u64, local: &str, remote: &str) -> Offer {
    let parse = |text: &str| Endpoint::from(text.parse::<SocketAddr>().expect("an address"));
    let space = AddressSpace { netns, device: 0, pod: None };
    let facts = SocketFacts { cookie: n, space, local: parse(local), remote: parse(remote), original: None };
    Offer { ticket: Ticket { member: n, offer: n }, facts, who: Who::user(1000), passive: false }
}

const A: &str = "10.0.0.1:1000";
const B: &str = "10.0.0.2:80";

#[test]
fn namespaces_are_crossed_only_if_told_so() {
    for across in [false, true] {
        let mut matcher = matcher(across);
        let first = offer(1, 1, A, B);
        assert_eq!(matcher.offer(first.clone()), Verdict::Waits);
        let expected = if across { Verdict::Pair(first) } else { Verdict::Waits };
        assert_eq!(matcher.offer(offer(2, 2, B, A)), expected);
    }
}

#[test]
fn loopback_never_crosses_namespaces() {
    let mut matcher = matcher(true);
    for (n, (a, b)) in [("127.0.0.1:1", "127.0.0.1:2"), ("[::1]:1", "[::1]:2"), (A, "127.0.0.1:2")].iter().enumerate() {
        assert_eq!(matcher.offer(offer(10 + n as u64, 1, a, b)), Verdict::Waits);
        assert_eq!(matcher.offer(offer(20 + n as u64, 2, b, a)), Verdict::Waits);
    }
}

#[test]
fn two_that_fit_are_two_too_many() {
    let mut matcher = matcher(true);
    assert_eq!(matcher.offer(offer(1, 1, A, B)), Verdict::Waits);
    assert_eq!(matcher.offer(offer(2, 2, A, B)), Verdict::Waits);
    let Verdict::Refused(Reason::Ambiguous, mut others) = matcher.offer(offer(3, 3, B, A)) else {
        panic!("paired, though two fit");
    };
    others.sort_by_key(|t| t.member);
    assert_eq!(others, [Ticket { member: 1, offer: 1 }, Ticket { member: 2, offer: 2 }]);
    assert!(matcher.is_empty());
}

#[test]
fn a_twin_elsewhere_makes_it_ambiguous() {
    let mut matcher = matcher(true);
    // A -> B exists in namespaces 1 and 2. The answerer in 3 belongs to one of them.
    assert_eq!(matcher.offer(offer(1, 3, B, A)), Verdict::Waits);
    assert_eq!(matcher.offer(offer(2, 4, B, A)), Verdict::Waits);
    assert!(matches!(matcher.offer(offer(3, 1, A, B)), Verdict::Refused(Reason::Ambiguous, _)));
}

#[test]
fn the_same_namespace_goes_first() {
    let mut matcher = matcher(true);
    let near = offer(1, 1, A, B);
    assert_eq!(matcher.offer(offer(2, 2, A, B)), Verdict::Waits);
    assert_eq!(matcher.offer(near.clone()), Verdict::Waits);
    assert_eq!(matcher.offer(offer(3, 1, B, A)), Verdict::Pair(near));
}

#[test]
fn a_redirected_port_is_not_mistaken_for_a_direct_one() {
    // R calls X:80, which is redirected to X:15001. Another socket with R's port calls X:15001 itself, which is redirected to
    // X:15006.
    let parse = |text: &str| Endpoint::from(text.parse::<SocketAddr>().expect("an address"));
    let (r, x80, x15001) = ("127.0.0.1:5", "127.0.0.1:80", "127.0.0.1:15001");
    let mut lands = offer(1, 1, x15001, r);
    lands.facts.original = Some(parse(x80));
    let mut matcher = matcher(false);
    assert_eq!(matcher.offer(lands.clone()), Verdict::Waits);
    assert_eq!(matcher.offer(offer(2, 1, r, x15001)), Verdict::Waits, "mirrors, but is not the peer");
    let calls = offer(3, 1, r, x80);
    assert_eq!(matcher.offer(calls.clone()), Verdict::Anew(vec![lands.clone()]));
    assert_eq!(matcher.offer(lands.clone()), Verdict::Pair(calls));
}

#[test]
fn one_socket_offered_by_two_processes_is_shared() {
    let mut matcher = matcher(false);
    let first = offer(1, 1, A, B);
    assert_eq!(matcher.offer(first.clone()), Verdict::Waits);
    let second = Offer { ticket: Ticket { member: 2, offer: 9 }, ..first.clone() };
    assert_eq!(matcher.offer(second), Verdict::Refused(Reason::Shared, vec![first.ticket]));
    assert_eq!(matcher.offer(first.clone()), Verdict::Waits);
    let again = Offer { ticket: Ticket { member: 1, offer: 9 }, ..first.clone() };
    assert_eq!(matcher.offer(again), Verdict::Refused(Reason::Dup, vec![]), "twice by the same process");
    assert!(matcher.contains(first.ticket));
}

#[test]
fn both_ends_must_be_of_permitted_users() {
    let mut matcher = Matcher::new(Trust::of_users(0, None, &[vec![1000, 1337]]), false);
    for (uid, paired) in [(1000, true), (1337, true), (1001, false), (0, false)] {
        let (a, b) = (offer(1, 1, A, B), Offer { who: Who::user(uid), ..offer(2, 1, B, A) });
        assert_eq!(matcher.offer(a.clone()), Verdict::Waits);
        let expected = if paired { Verdict::Pair(a) } else { Verdict::Strangers(a) };
        assert_eq!(matcher.offer(b.clone()), expected, "user {uid}");
        assert!(matcher.is_empty());
    }
}

#[test]
fn a_hundred_thousand_waiting_offers_cost_no_more_each() {
    let mut matcher = matcher(true);
    let address = |n: u64, port: u16| format!("10.1.{}.{}:{port}", n / 250 % 250, n % 250);
    for n in 0..100_000u64 {
        let (local, remote) = (address(n, 1000 + (n / 62_500) as u16), address(n, 80));
        assert_eq!(matcher.offer(offer(n, 1, &local, &remote)), Verdict::Waits);
    }
    assert_eq!(matcher.len(), 100_000);
    // Quadratic work would take minutes here; this takes well under a second.
    for n in 0..100_000u64 {
        let (local, remote) = (address(n, 80), address(n, 1000 + (n / 62_500) as u16));
        assert!(matches!(matcher.offer(offer(200_000 + n, 1, &local, &remote)), Verdict::Pair(_)));
    }
    assert!(matcher.is_empty());
}
