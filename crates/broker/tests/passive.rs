//! Passive offers: of ends that would not profit from a ring themselves.

use crate::common::{FakeMember, TestBroker, tcp_pair};
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use std::os::fd::AsFd;

fn offer_passively(member: &FakeMember, number: u64, socket: impl AsFd) {
    let cookie = rustix::net::sockopt::socket_cookie(&socket).expect("cookie");
    let msg = Msg { offer: number, arg: cookie, arg2: 1, ..Msg::new(Kind::Offer) };
    let socket = socket.as_fd().try_clone_to_owned().expect("dup");
    member.send(msg, Some(&socket));
}

fn press(member: &FakeMember, number: u64) {
    member.send(Msg { offer: number, ..Msg::new(Kind::Press) }, None);
}

fn members(broker: &TestBroker) -> (FakeMember, FakeMember) {
    (FakeMember::join(&broker.address, 4096), FakeMember::join(&broker.address, 4096))
}

fn expect_pair(a: (&FakeMember, u64), b: (&FakeMember, u64)) {
    for (member, number) in [a, b] {
        member.expect_link();
        member.expect_slot(number);
    }
}

#[test]
fn two_passive_offers_wait_beside_each_other() {
    let broker = TestBroker::start();
    let (a, b) = members(&broker);
    let (client, server) = tcp_pair("127.0.0.1");
    offer_passively(&a, 1, &client);
    offer_passively(&b, 2, &server);
    a.expect_silence();
    b.expect_silence();
    assert_eq!(broker.status().links, []);
}

#[test]
fn a_passive_offer_is_paired_with_one_that_is_not() {
    let broker = TestBroker::start();
    let (a, b) = members(&broker);
    let (client, server) = tcp_pair("127.0.0.1");
    offer_passively(&a, 1, &client);
    a.expect_silence();
    b.offer(2, &server);
    expect_pair((&a, 1), (&b, 2));
}

#[test]
fn one_that_comes_later_may_be_the_passive_one() {
    let broker = TestBroker::start();
    let (a, b) = members(&broker);
    let (client, server) = tcp_pair("127.0.0.1");
    a.offer(1, &client);
    a.expect_silence();
    offer_passively(&b, 2, &server);
    expect_pair((&a, 1), (&b, 2));
}

/// The offer is proved again: what is known of its socket may be out of date.
#[test]
fn who_presses_is_asked_for_the_socket_again() {
    let broker = TestBroker::start();
    let (a, b) = members(&broker);
    let (client, server) = tcp_pair("127.0.0.1");
    offer_passively(&a, 1, &client);
    a.expect_silence();
    offer_passively(&b, 2, &server);
    b.expect_silence();
    press(&b, 2);
    b.offer_again(2, &server);
    expect_pair((&a, 1), (&b, 2));
}

#[test]
fn who_presses_before_the_other_end_comes_waits_for_it() {
    let broker = TestBroker::start();
    let (a, b) = members(&broker);
    let (client, server) = tcp_pair("127.0.0.1");
    offer_passively(&a, 1, &client);
    press(&a, 1);
    a.expect_silence();
    offer_passively(&b, 2, &server);
    expect_pair((&a, 1), (&b, 2));
}

/// Press has no effect on an offer that was paired, was withdrawn, or never was.
#[test]
fn pressing_for_what_does_not_wait_changes_nothing() {
    let broker = TestBroker::start();
    let (a, b) = members(&broker);
    let (client, server) = tcp_pair("127.0.0.1");
    a.offer(1, &client);
    a.expect_silence();
    b.offer(2, &server);
    expect_pair((&a, 1), (&b, 2));
    press(&a, 1);
    press(&a, 99);
    let (client, _server) = tcp_pair("127.0.0.1");
    offer_passively(&a, 3, &client);
    a.send(Msg { offer: 3, ..Msg::new(Kind::Withdraw) }, None);
    press(&a, 3);
    a.expect_silence();
    assert_eq!(broker.status().links.len(), 1);
}

/// A socket that was closed while its offer waited is no other end.
#[test]
fn a_passive_offer_whose_socket_is_gone_is_not_paired() {
    let broker = TestBroker::start();
    let (a, b) = members(&broker);
    let (client, server) = tcp_pair("127.0.0.1");
    offer_passively(&a, 1, &client);
    a.expect_silence();
    offer_passively(&b, 2, &server);
    b.expect_silence();
    drop(client);
    press(&b, 2);
    b.expect(Kind::Again);
    a.expect_refused(1, Reason::Short);
}
