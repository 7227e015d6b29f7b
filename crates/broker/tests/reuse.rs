//! Addresses are reused: an offer whose socket is gone proves nothing, and does no harm. Needs root.

use crate::common;

use crate::common::users::{CAROL, DAVE, MALLORY, as_user};
use crate::common::{FakeMember, TestBroker, wait_for};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketType, sockopt};
use sidestep_abi::Reason;
use sidestep_abi::msg::Kind;
use sidestep_broker::trust::Trust;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A connection from this port, which other connections have used or will use.
fn call_from(from: SocketAddr, to: SocketAddr) -> rustix::io::Result<TcpStream> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &from)?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// Resets the connection, so that its addresses are free at once, on both ends.
fn reset(stream: TcpStream) {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("linger");
}

fn free(host: &str) -> SocketAddr {
    TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr()).expect("a free port")
}

/// A broker of root that lets these two share memory.
fn broker() -> TestBroker {
    TestBroker::with(None, |settings| settings.trust = Trust::of_users(0, None, &[vec![MALLORY, CAROL]]))
}

fn member(broker: &TestBroker, user: u32) -> FakeMember {
    as_user(user, || broker.join())
}

fn offer(member: &FakeMember, user: u32, number: u64, socket: &TcpStream) {
    as_user(user, || member.offer(number, socket));
}

fn settled(member: &FakeMember, user: u32) {
    as_user(user, || member.expect_silence());
}

#[test]
fn who_gave_its_addresses_up_does_not_get_the_next_one_s_bytes() {
    for host in ["127.0.0.1", "::1"] {
        let broker = broker();
        let (mallory, carol) = (member(&broker, MALLORY), member(&broker, CAROL));
        let listener = TcpListener::bind((host, 0)).expect("bind");
        let (from, to) = (free(host), listener.local_addr().expect("address"));
        let stale = call_from(from, to).expect("connect");
        drop(listener.accept().expect("accept"));
        offer(&mallory, MALLORY, 1, &stale);
        settled(&mallory, MALLORY);
        assert_eq!(broker.status().waiting_offers, 1);
        reset(stale);
        // A stranger happens to get the same addresses, and the server offers what it has accepted.
        let stranger = wait_for("the port is free", || call_from(from, to).ok());
        let (accepted, _) = listener.accept().expect("accept");
        offer(&carol, CAROL, 2, &accepted);
        mallory.expect_refused(1, Reason::Short);
        settled(&carol, CAROL);
        let status = broker.status();
        assert_eq!(
            (status.connections.len(), status.waiting_offers),
            (0, 1),
            "the new one waits for its own other end"
        );
        assert_eq!(status.refused.get("short").copied().unwrap_or(0) % 2, 1, "counted, beside those of `settled`");
        // The stranger is another user, who may not share memory with the server. Otherwise they would be a pair.
        let dave = member(&broker, DAVE);
        offer(&dave, DAVE, 3, &stranger);
        dave.expect_refused(3, Reason::UserPair);
        carol.expect_refused(2, Reason::UserPair);
    }
}

#[test]
fn a_stale_offer_does_not_keep_the_two_ends_apart() {
    let broker = broker();
    let (mallory, carol, other) = (member(&broker, MALLORY), member(&broker, CAROL), member(&broker, CAROL));
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (from, to) = (free("127.0.0.1"), listener.local_addr().expect("address"));
    for honest_first in [true, false] {
        let stale = call_from(from, to).expect("connect");
        drop(listener.accept().expect("accept"));
        offer(&mallory, MALLORY, 1, &stale);
        settled(&mallory, MALLORY);
        reset(stale);
        let client = wait_for("the port is free", || call_from(from, to).ok());
        let (server, _) = listener.accept().expect("accept");
        let ends =
            if honest_first { [(&carol, &client), (&other, &server)] } else { [(&other, &server), (&carol, &client)] };
        offer(ends[0].0, CAROL, 5, ends[0].1);
        mallory.expect_refused(1, Reason::Short);
        offer(ends[1].0, CAROL, 6, ends[1].1);
        for (member, number) in [(ends[0].0, 5), (ends[1].0, 6)] {
            if honest_first {
                member.expect_link();
            }
            let given = member.expect_slot(number);
            as_user(CAROL, || member.release(given));
        }
        settled(&carol, CAROL);
        settled(&other, CAROL);
        reset(client);
    }
}

#[test]
fn offers_whose_sockets_are_gone_do_not_stay() {
    let broker = broker();
    let mallory = member(&broker, MALLORY);
    let (client, server) = common::tcp_pair("127.0.0.1");
    offer(&mallory, MALLORY, 1, &client);
    settled(&mallory, MALLORY);
    reset(client);
    drop(server);
    mallory.expect_refused(1, Reason::Short);
    assert_eq!(broker.status().waiting_offers, 0);
}

/// An end that was closed regularly proves nothing either, although the kernel still has its addresses.
#[test]
fn an_orphan_proves_nothing() {
    let broker = broker();
    let (mallory, carol) = (member(&broker, MALLORY), member(&broker, CAROL));
    let (client, server) = common::tcp_pair("127.0.0.1");
    offer(&mallory, MALLORY, 1, &client);
    settled(&mallory, MALLORY);
    drop(client);
    offer(&carol, CAROL, 2, &server);
    mallory.expect_refused(1, Reason::Short);
    settled(&carol, CAROL);
    assert_eq!(broker.status().waiting_offers, 1);
}

/// At least this many tries. One would be enough if haste could deceive the broker.
const CHANCES: u32 = 50;

/// An attacker offers, resets and offers again as fast as it can, from the port that others use in turn. It never gets a slot
/// on one of their connections.
#[test]
fn nobody_wins_the_race_for_an_address() {
    let broker = broker();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let (from, to) = (free("127.0.0.1"), listener.local_addr().expect("address"));
    let (mallory, carol, dave) = (member(&broker, MALLORY), member(&broker, CAROL), member(&broker, DAVE));
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut strangers = 0;
    let mut numbers = 1..;
    while strangers < CHANCES
        && let Some(number) = numbers.next()
    {
        assert!(Instant::now() < deadline, "only {strangers} chances");
        let Ok(stale) = call_from(from, to) else { continue };
        drop(listener.accept().expect("accept"));
        offer(&mallory, MALLORY, number, &stale);
        reset(stale);
        // The broker may hold a copy of the socket for a moment.
        let Some(stranger) = (0..1000).find_map(|_| call_from(from, to).ok()) else { continue };
        let (accepted, _) = listener.accept().expect("accept");
        // The stranger's own end is offered first, last, or not at all.
        if number % 3 == 0 {
            offer(&dave, DAVE, number, &stranger);
        }
        offer(&carol, CAROL, number, &accepted);
        if number % 3 == 1 {
            offer(&dave, DAVE, number, &stranger);
        }
        strangers += 1;
        reset(stranger);
    }
    settled_whatever_it_was_told(&mallory, MALLORY);
    settled_whatever_it_was_told(&carol, CAROL);
    let status = broker.status();
    assert_eq!((status.links.len(), status.connections.len()), (0, 0), "of {strangers} chances");
    assert!(strangers >= CHANCES, "only {strangers} within a minute");
}

/// Reads records until the answer to a new question arrives.
fn settled_whatever_it_was_told(member: &FakeMember, user: u32) {
    let socket: OwnedFd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("socket");
    as_user(user, || member.offer(u64::MAX, &socket));
    loop {
        let (msg, _) = common::receive(&member.socket).expect("the broker answers");
        assert_eq!(msg.kind(), Some(Kind::Refused), "{msg:?}");
        if msg.offer == u64::MAX {
            return;
        }
    }
}
