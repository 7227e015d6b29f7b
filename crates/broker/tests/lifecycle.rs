//! The end of slots, links and members.

use crate::common;

use crate::common::{Shared, TestBroker, receive, rung, wait_for};
use sidestep_abi::link::{FROZEN, UNUSED};
use sidestep_abi::msg::Kind;
use sidestep_broker::server::Ended;
use sidestep_ring::doorbell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

#[test]
fn a_death_freezes_what_the_dead_read_and_wakes_the_survivor() {
    let broker = TestBroker::start();
    let mut shared = Shared::new(&broker);
    let (_, second) = shared.add();
    let (awake, asleep) = (shared.b.bell(2), shared.b.bell(5));
    for _ in 0..2 {
        shared.a.expect(Kind::PeerDoorbell);
    }
    let Shared { a, b, memory_b, slot_a, slot_b, .. } = shared;
    // The dead side has read 100 bytes of the survivor's. The survivor has 50 bytes left to read.
    let slot = memory_b.slot(slot_b.slot);
    slot.reader[slot_b.side].head.store(100, SeqCst);
    slot.reader[slot_a.side].head.store(50, SeqCst);
    slot.side[slot_b.side].doorbells.store(1 << 2 | 1 << 5, SeqCst);
    memory_b.side_area(slot_b.side).doorbells[5].armed.store(1, SeqCst);
    let pending = b.pending();

    drop(a);
    wait_for("the survivor is told", || (b.pending() > pending).then_some(()));
    assert_eq!(slot.reader[slot_b.side].head.load(SeqCst), FROZEN | 100, "frozen where it was");
    assert_eq!(slot.reader[slot_a.side].head.load(SeqCst), 50, "published bytes stay readable");
    assert_eq!(slot.side[slot_a.side].froze.load(SeqCst), 1);
    assert_eq!(slot.side[slot_b.side].froze.load(SeqCst), 0);
    for place in [2, 5] {
        let bell = &memory_b.side_area(slot_b.side).doorbells[place];
        assert!(doorbell::is_marked(bell, slot_b.slot));
        assert_eq!(
            bell.armed.load(SeqCst),
            u32::from(place == 5),
            "a ring that is lost may be made up for by the peer"
        );
    }
    assert_eq!((rung(&awake), rung(&asleep)), (false, true), "only who sleeps is rung");

    // The link goes when the survivor has released all slots.
    b.release(slot_b);
    b.expect_silence();
    b.release(second);
    let (unlink, _) = b.expect(Kind::Unlink);
    assert_eq!((unlink.link, unlink.side as usize), (slot_b.link, slot_b.side));
    assert_eq!(broker.status().links, []);
}

#[test]
fn a_slot_without_named_places_rings_all_of_them() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    let bell = shared.b.bell(0);
    shared.a.expect(Kind::PeerDoorbell);
    shared.memory_b.side_area(shared.slot_b.side).doorbells[0].armed.store(1, SeqCst);
    drop(shared.a);
    wait_for("the doorbell rings", || rung(&bell).then_some(()));
}

#[test]
fn what_both_released_is_given_back_to_the_system() {
    let broker = TestBroker::start();
    let mut shared = Shared::new(&broker);
    let (other, _) = shared.add();
    let (slot_a, slot_b) = (shared.slot_a, shared.slot_b);
    let ring_size = shared.memory_a.ring_size;
    for slot in [slot_a.slot, other.slot] {
        for side in 0..2 {
            for at in (0..ring_size).step_by(4096) {
                shared.memory_a.ring_byte(slot, side, at).store(0xAA, Relaxed);
            }
        }
    }
    let full = shared.memory_a.resident_bytes();
    shared.a.release(slot_a);
    shared.a.expect_silence();
    assert_eq!(shared.memory_a.resident_bytes(), full, "the other side may still read");
    assert_eq!(shared.memory_a.slot(slot_a.slot).side[slot_a.side].released.load(SeqCst), 1);

    shared.b.release(slot_b);
    let punched = full - 2 * ring_size as u64;
    wait_for("the memory is given back", || (shared.memory_a.resident_bytes() == punched).then_some(()));
    assert_eq!(shared.memory_a.ring_byte(slot_a.slot, 1, 0).load(Relaxed), 0);
    assert_eq!(shared.memory_a.ring_byte(other.slot, 0, 0).load(Relaxed), 0xAA, "its neighbour is untouched");
    assert_eq!(shared.memory_a.slot(slot_a.slot).reader[0].head.load(SeqCst), UNUSED);
    assert_eq!(broker.status().links[0].slots_used, 1);
    // The link stays for the next connection of the two.
    assert_eq!(shared.add().0, slot_a);
}

#[test]
fn a_release_without_a_freeze_is_completed_by_the_broker() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    let words = shared.memory_b.slot(shared.slot_b.slot);
    words.reader[shared.slot_b.side].head.store(10, SeqCst);
    let pending = shared.b.pending();
    shared.a.release(shared.slot_a);
    wait_for("the peer is told", || (shared.b.pending() > pending).then_some(()));
    assert_eq!(words.reader[shared.slot_b.side].head.load(SeqCst), FROZEN | 10);
}

#[test]
fn a_death_with_nothing_shared_unlinks_at_once() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    shared.a.release(shared.slot_a);
    shared.b.release(shared.slot_b);
    shared.b.expect_silence();
    drop(shared.a);
    shared.b.expect(Kind::Unlink);
}

#[test]
fn a_process_that_shares_with_itself_dies_cleanly() {
    let broker = TestBroker::start();
    let member = broker.join();
    let (client, server) = common::tcp_pair("127.0.0.1");
    member.offer(1, &client);
    member.offer(2, &server);
    member.expect_link();
    member.expect_link();
    drop(member);
    wait_for("the link is gone", || broker.status().links.is_empty().then_some(()));
}

#[test]
fn members_that_lose_the_broker_keep_what_they_share() {
    let broker = TestBroker::start();
    let Shared { a, b, memory_a, memory_b, slot_a, .. } = Shared::new(&broker);
    let words = memory_a.slot(slot_a.slot);
    words.reader[slot_a.side].head.store(7, SeqCst);
    words.writer[slot_a.side].tail.store(8, SeqCst);
    memory_a.ring_byte(slot_a.slot, slot_a.side, 7).store(42, SeqCst);
    drop((a, b));
    wait_for("both are buried", || broker.status().links.is_empty().then_some(()));
    assert_eq!(memory_b.ring_byte(slot_a.slot, slot_a.side, 7).load(SeqCst), 42, "a byte that was not read yet");
    assert_eq!(words.writer[slot_a.side].tail.load(SeqCst), 8);
    assert_eq!(words.reader[slot_a.side].head.load(SeqCst), FROZEN | 7);
}

#[test]
fn an_idle_broker_leaves() {
    let broker = TestBroker::with(Some(Duration::from_millis(50)), |_| {});
    assert_eq!(broker.ended(), Ended::Idle);
}

#[test]
fn a_broker_with_a_member_stays() {
    let limit = Duration::from_millis(50);
    let broker = TestBroker::with(Some(limit), |_| {});
    let member = broker.join();
    std::thread::sleep(4 * limit);
    let other = broker.join();
    drop(member);
    std::thread::sleep(4 * limit);
    other.expect_silence();
    drop(other);
    assert_eq!(broker.ended(), Ended::Idle);
}

#[test]
fn a_broker_asked_to_stay_does_so_while_the_asker_lives() {
    let limit = Duration::from_millis(50);
    let broker = TestBroker::with(Some(limit), |_| {});
    // The process that asked is this one, which lives on after the connection is closed.
    sidestep_broker::client::Client::connect(&broker.address).expect("the broker accepts").stay().expect("answered");
    std::thread::sleep(4 * limit);
    assert_eq!(broker.status().processes, []);
}

#[test]
fn links_outlive_the_broker() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    drop(broker);
    while receive(&shared.a.socket).is_some() {}
    shared.memory_a.ring_byte(0, 0, 0).store(42, SeqCst);
    assert_eq!(shared.memory_b.ring_byte(0, 0, 0).load(SeqCst), 42);
    assert_eq!(shared.memory_a.slot(0).reader[0].head.load(SeqCst), UNUSED, "nothing is frozen");
}
