//! The two ends of a connection are offered: memory, doorbells and slots for both.

use crate::common::memory::Mapped;
use crate::common::{FakeMember, Shared, TestBroker, connect, receive, rung, tcp_pair};
use rustix::fd::AsFd;
use rustix::fs::SealFlags;
use rustix::net::sockopt;
use sidestep_abi::link::{SLOTS, UNUSED, link_size};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_abi::page::Page;
use sidestep_abi::{MAGIC, Reason, VERSION};
use sidestep_broker::wire;
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::{Acquire, SeqCst};

#[test]
fn both_ends_get_the_same_sealed_memory() {
    let broker = TestBroker::start();
    let Shared { a, b, memory_a, memory_b, slot_a, slot_b, .. } = Shared::new(&broker);

    assert_eq!((memory_a.link, memory_a.ring_size), (memory_b.link, memory_b.ring_size));
    assert_eq!((slot_a.link, slot_a.slot, slot_a.side), (slot_b.link, slot_b.slot, 1 - slot_b.side));
    assert_eq!((memory_a.side, memory_b.side), (slot_a.side, slot_b.side));
    let seals = rustix::fs::fcntl_get_seals(&memory_a.fd).expect("seals");
    assert_eq!(seals, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL);
    assert_eq!(rustix::fs::fstat(&memory_a.fd).expect("stat").st_size as usize, link_size(memory_a.ring_size));
    assert!(rustix::fs::ftruncate(&memory_b.fd, 4096).is_err(), "nobody can take pages away");

    let header = memory_b.header();
    assert_eq!((header.magic.load(Acquire), header.version.load(Acquire)), (MAGIC, VERSION));
    assert_eq!((header.slots.load(Acquire), header.ring_size.load(Acquire)), (SLOTS as u32, memory_a.ring_size as u32));
    for direction in 0..2 {
        assert_eq!(memory_a.slot(slot_a.slot).reader[direction].head.load(Acquire), UNUSED);
    }
    for side in 0..2 {
        memory_a.slot(slot_a.slot).writer[side].tail.store(1 + side as u64, SeqCst);
        memory_a.ring_byte(slot_a.slot, side, 4095).store(40 + side as u8, SeqCst);
        assert_eq!(memory_b.slot(slot_b.slot).writer[side].tail.load(SeqCst), 1 + side as u64);
        assert_eq!(memory_b.ring_byte(slot_b.slot, side, 4095).load(SeqCst), 40 + side as u8);
    }
    // Welcome came before the page could be mapped; the link and the slot were announced after that.
    assert!(a.pending() >= 2 && b.pending() >= 2, "announced: {} and {}", a.pending(), b.pending());
}

#[test]
fn the_page_says_what_it_is() {
    let broker = TestBroker::start();
    let member = broker.join();
    assert_eq!((member.page().magic.load(Acquire), member.page().version.load(Acquire)), (MAGIC, VERSION));
    assert_eq!(member.page().hold.load(Acquire), 0);
}

#[test]
fn a_member_of_the_version_before_is_spoken_to_in_it() {
    let broker = TestBroker::start();
    let old = |kind| Msg { version: VERSION - 1, ..Msg::new(kind) };
    let socket = connect(&broker.address);
    wire::send(socket.as_fd(), &Msg { arg: 4096, ..old(Kind::Hello) }, None).expect("hello");
    let (welcome, page) = receive(&socket).expect("an answer");
    assert_eq!((welcome.kind(), welcome.version), (Some(Kind::Welcome), VERSION - 1));
    let page = Mapped::new(&page.expect("the page"), size_of::<Page>());
    assert_eq!(page.at::<Page>(0).version.load(Acquire), VERSION - 1);

    let (client, server) = tcp_pair("127.0.0.1");
    let arg = sockopt::socket_cookie(&client).expect("cookie");
    wire::send(socket.as_fd(), &Msg { offer: 1, arg, ..old(Kind::Offer) }, Some(client.as_fd())).expect("offer");
    let member = broker.join();
    member.offer(2, &server);
    let (link, _) = receive(&socket).expect("a link");
    assert_eq!((link.kind(), link.version), (Some(Kind::Link), VERSION - 1));
    let memory = member.expect_link();
    assert_eq!(memory.header().version.load(Acquire), VERSION - 1, "what both speak");
    member.expect_slot(2);

    wire::send(socket.as_fd(), &Msg::new(Kind::Settle), None).expect("send");
    while receive(&socket).is_some() {} // it speaks one version, or is sent away
}

#[test]
fn ipv6_and_mapped_addresses_pair_too() {
    let broker = TestBroker::start();
    let (a, b) = (broker.join(), broker.join());
    let (client, server) = tcp_pair("::1");
    a.offer(1, &client);
    b.offer(1, &server);
    a.expect_link();
    a.expect_slot(1);
    // An IPv6 socket that accepts IPv4, called by an IPv4 one.
    let listener = TcpListener::bind("[::]:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let client = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let (server, _) = listener.accept().expect("accept");
    assert!(server.local_addr().expect("address").is_ipv6());
    b.offer(2, &server);
    a.offer(2, &client);
    a.expect_slot(2);
}

#[test]
fn both_ends_in_one_process() {
    let broker = TestBroker::start();
    let member = broker.join();
    let _bell = member.bell(4);
    let (client, server) = tcp_pair("127.0.0.1");
    member.offer(1, &client);
    member.offer(2, &server);
    for side in 0..2 {
        assert_eq!(member.expect_link().side, side);
        let (bell, fd) = member.expect(Kind::PeerDoorbell);
        assert_eq!((bell.side as usize, bell.place), (side, 4));
        assert!(fd.is_some());
    }
    let slots = [member.expect_slot(1), member.expect_slot(2)];
    assert_eq!((slots[0].side, slots[1].side), (0, 1));
    assert_eq!((slots[0].link, slots[0].slot), (slots[1].link, slots[1].slot));
}

#[test]
fn a_pair_of_processes_uses_one_link_until_it_is_full() {
    let broker = TestBroker::start();
    let mut shared = Shared::new(&broker);
    let mut slots = BTreeSet::from([shared.slot_a.slot]);
    let mut streams = Vec::new();
    for _ in 1..SLOTS {
        // Either end may be offered first, by either process.
        let (client, server) = tcp_pair("127.0.0.1");
        shared.b.offer(5, &client);
        shared.a.offer(6, &server);
        let (b, a) = (shared.b.expect_slot(5), shared.a.expect_slot(6));
        assert_eq!((a.link, a.side, b.side), (shared.slot_a.link, shared.slot_a.side, shared.slot_b.side));
        assert!(slots.insert(a.slot), "slot {} given twice", a.slot);
        streams.push((client, server));
    }
    assert_eq!(slots.len(), SLOTS);
    let (client, server) = tcp_pair("127.0.0.1");
    shared.a.offer(7, &client);
    shared.b.offer(8, &server);
    assert_ne!(shared.a.expect_link().link, shared.slot_a.link);
    shared.a.expect_slot(7);
    shared.b.expect_link();
    // Room on the first link is used again.
    shared.a.release(shared.slot_a);
    shared.b.release(shared.slot_b);
    shared.b.expect_slot(8);
    assert_eq!(shared.add().0, shared.slot_a);
}

#[test]
fn doorbells_reach_every_peer_on_every_link() {
    let broker = TestBroker::start();
    let (hub, early) = (broker.join(), broker.bell_member(9));
    let (client, server) = tcp_pair("127.0.0.1");
    hub.offer(1, &client);
    early.0.offer(1, &server);
    let link = hub.expect_link().link;
    // A doorbell that was known before the link.
    let (told, bell) = hub.expect(Kind::PeerDoorbell);
    assert_eq!((told.link, told.place), (link, 9));
    rustix::io::write(bell.as_ref().expect("attached"), &1u64.to_ne_bytes()).expect("ring");
    assert!(rung(&early.1));
    hub.expect_slot(1);
    early.0.expect_link();
    early.0.expect_slot(1);
    // A later doorbell is announced to every peer.
    let _late = hub.bell(63);
    let (told, bell) = early.0.expect(Kind::PeerDoorbell);
    assert_eq!((told.link, told.place, bell.is_some()), (link, 63, true));
    hub.expect_silence();
}

#[test]
fn the_larger_wish_decides_the_ring_size() {
    let broker = TestBroker::start();
    let (a, b) = (FakeMember::join(&broker.address, 5000), FakeMember::join(&broker.address, 70_000));
    let (client, server) = tcp_pair("127.0.0.1");
    a.offer(1, &client);
    b.offer(1, &server);
    assert_eq!(a.expect_link().ring_size, 128 * 1024);
}

#[test]
fn a_withdrawn_offer_is_not_paired() {
    let broker = TestBroker::start();
    let (a, b) = (broker.join(), broker.join());
    let (client, server) = tcp_pair("127.0.0.1");
    a.offer(1, &client);
    a.send(Msg { offer: 1, ..Msg::new(Kind::Withdraw) }, None);
    a.expect_silence();
    b.offer(2, &server);
    b.expect_silence();
    assert_eq!(broker.status().waiting_offers, 1);
    // It is paired when it is offered again.
    a.offer(3, &client);
    a.expect_link();
    a.expect_slot(3);
}

/// A sleeping process does not learn of its slot, but has sent a withdrawal before.
#[test]
fn an_offer_that_is_withdrawn_too_late_gives_its_slot_back() {
    let broker = TestBroker::start();
    let Shared { a, b, slot_a, slot_b, .. } = Shared::new(&broker);
    b.release(slot_b);
    b.expect_silence();
    a.send(Msg { offer: 1, ..Msg::new(Kind::Withdraw) }, None);
    a.expect_silence();
    assert_eq!(broker.status().links[0].slots_used, 0);
    // The withdrawal is sent again, when the slot is another connection's already.
    let (client, server) = tcp_pair("127.0.0.1");
    a.offer(7, &client);
    b.offer(8, &server);
    assert_eq!(a.expect_slot(7), slot_a);
    a.send(Msg { offer: 1, ..Msg::new(Kind::Withdraw) }, None);
    a.expect_silence();
    assert_eq!(broker.status().links[0].slots_used, 1);
}

#[test]
fn a_socket_that_two_processes_hold_stays_on_the_kernel() {
    let broker = TestBroker::start();
    let mut shared = Shared::new(&broker);
    let child = broker.join();
    // The socket has a slot already: only the new offer is refused.
    child.offer(1, &shared.streams.0);
    child.expect_refused(1, Reason::Shared);
    shared.a.offer(9, &shared.streams.0);
    shared.a.expect_refused(9, Reason::Dup);
    // The offer still waits: both are refused.
    let (client, _server) = tcp_pair("127.0.0.1");
    shared.a.offer(3, &client);
    shared.a.expect_silence();
    child.offer(2, &client);
    child.expect_refused(2, Reason::Shared);
    shared.a.expect_refused(3, Reason::Shared);
    // After one side's release its socket may be offered again, while the other side still holds the slot.
    shared.a.release(shared.slot_a);
    shared.a.offer(4, &shared.streams.0);
    shared.a.expect_silence();
    assert_eq!(broker.status().waiting_offers, 1);
    shared.add();
}
