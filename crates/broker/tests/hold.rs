//! Detach and attach, and what the status says.

use crate::common::{Shared, TestBroker, rung, tcp_pair, wait_for};
use sidestep_abi::Reason;
use sidestep_abi::link::FROZEN;
use sidestep_broker::broker::hold::Scope;
use sidestep_broker::client::ClientError;
use sidestep_broker::status::Carrier;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Sets both directions of the first connection to "by ring", up to these positions.
fn use_rings(shared: &Shared) {
    let words = shared.memory_a.slot(shared.slot_a.slot);
    for direction in 0..2 {
        let base = 1000 * (1 + direction as u64);
        words.writer[direction].ring_from.store(base, SeqCst);
        words.writer[direction].tail.store(base + 30, SeqCst);
        words.reader[direction].head.store(base + 20, SeqCst);
        words.writer[direction].epoch.store(1, SeqCst);
    }
}

/// Hints to each side so far.
fn hints(shared: &Shared) -> [u32; 2] {
    let words = shared.memory_a.slot(shared.slot_a.slot);
    [0, 1].map(|side| words.side[side].froze.load(SeqCst))
}

fn held(shared: &Shared) -> (u32, u32, u32) {
    let slot = shared.memory_a.slot(shared.slot_a.slot).hold.load(SeqCst);
    (slot, shared.a.page().hold.load(SeqCst), shared.b.page().hold.load(SeqCst))
}

#[test]
fn one_connection() {
    let broker = TestBroker::start();
    let mut shared = Shared::new(&broker);
    let (other, _) = shared.add();
    use_rings(&shared);
    let pending = (shared.a.pending(), shared.b.pending());
    let scope = Scope::Connection { link: shared.slot_a.link, slot: shared.slot_a.slot as u32 };
    assert_eq!(broker.operator().hold(scope, true).expect("known"), 1);
    assert_eq!((hints(&shared), held(&shared)), ([1, 1], (1, 0, 0)));
    let words = shared.memory_a.slot(shared.slot_a.slot);
    assert_eq!(words.reader[0].head.load(SeqCst), 1020, "its writer ends it, nobody else");
    wait_for("both are told", || (shared.a.pending() > pending.0 && shared.b.pending() > pending.1).then_some(()));
    assert_eq!(shared.memory_a.slot(other.slot).hold.load(SeqCst), 0, "its neighbour is not concerned");

    assert_eq!(broker.operator().hold(scope, false).expect("known"), 1);
    assert_eq!(held(&shared), (0, 0, 0));
}

#[test]
fn one_process() {
    let broker = TestBroker::start();
    let mut shared = Shared::new(&broker);
    use_rings(&shared);
    // Both members are in this process.
    let scope = Scope::Process(std::process::id());
    assert_eq!(broker.operator().hold(scope, true).expect("known"), 1);
    assert_eq!((hints(&shared), held(&shared)), ([1, 1], (1, 1, 1)));
    let (later, _) = shared.add();
    assert_eq!(shared.memory_a.slot(later.slot).hold.load(SeqCst), 1, "new connections are held too");
    assert_eq!(broker.operator().hold(scope, false).expect("known"), 2);
    assert_eq!(held(&shared), (0, 0, 0));
    assert_eq!(shared.memory_a.slot(later.slot).hold.load(SeqCst), 0);
}

/// It holds them itself, and says how many they are.
#[test]
fn a_process_with_connections_of_an_earlier_broker_is_woken() {
    let broker = TestBroker::start();
    let (member, bell) = broker.bell_member(3);
    member.expect_silence();
    rung(&bell);
    member.page().earlier.store(2, Relaxed);
    let scope = Scope::Process(std::process::id());
    for hold in [true, false] {
        let pending = member.pending();
        assert_eq!(broker.operator().hold(scope, hold).expect("known"), 0);
        assert!(rung(&bell) && member.pending() > pending);
        let status = broker.status();
        let [process] = &status.processes[..] else { panic!("{:?}", status.processes) };
        assert_eq!((process.hold, process.earlier_connections), (hold, 2));
    }
}

#[test]
fn everything_and_everything_to_come() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    use_rings(&shared);
    assert_eq!(broker.operator().hold(Scope::All, true).expect("done"), 1);
    assert_eq!((hints(&shared), held(&shared)), ([1, 1], (1, 1, 1)));
    assert!(broker.status().hold);
    let newcomer = broker.join();
    assert_eq!(newcomer.page().hold.load(SeqCst), 1);
    let (client, server) = tcp_pair("127.0.0.1");
    newcomer.offer(1, &client);
    shared.b.offer(2, &server);
    let memory = newcomer.expect_link();
    assert_eq!(memory.slot(newcomer.expect_slot(1).slot).hold.load(SeqCst), 1);

    assert_eq!(broker.operator().hold(Scope::All, false).expect("done"), 2);
    assert_eq!((held(&shared), newcomer.page().hold.load(SeqCst)), ((0, 0, 0), 0));
    assert_eq!(broker.join().page().hold.load(SeqCst), 0);
}

#[test]
fn a_stretch_in_spite_of_a_hold_is_hinted_at_again() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    broker.operator().hold(Scope::All, true).expect("done");
    use_rings(&shared);
    shared.memory_a.slot(shared.slot_a.slot).hold.store(0, SeqCst);
    let before = hints(&shared);
    let more = |now: [u32; 2]| now[0] > before[0] && now[1] > before[1];
    wait_for("the sweep comes", || (more(hints(&shared)) && held(&shared).0 == 1).then_some(()));
    for direction in 0..2 {
        shared.memory_a.slot(shared.slot_a.slot).writer[direction].complete.store(1, SeqCst);
    }
    broker.operator().hold(Scope::All, false).expect("done");
    let before = hints(&shared);
    for _ in 0..50 {
        broker.status();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(hints(&shared), before, "no sweep without a hold");
}

#[test]
fn a_connection_stays_held_while_either_end_is() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    let scope = Scope::Connection { link: shared.slot_a.link, slot: shared.slot_a.slot as u32 };
    broker.operator().hold(Scope::All, true).expect("done");
    broker.operator().hold(scope, false).expect("known");
    assert_eq!(held(&shared), (1, 1, 1));
}

#[test]
fn what_does_not_exist_is_unknown() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    let link = shared.slot_a.link;
    for scope in [
        Scope::Process(0),
        Scope::Process(1),
        Scope::Connection { link: link + 1, slot: 0 },
        Scope::Connection { link, slot: 1 },
        Scope::Connection { link, slot: u32::MAX },
    ] {
        assert!(matches!(broker.operator().hold(scope, true), Err(ClientError::Unknown)), "{scope:?}");
    }
}

#[test]
fn the_status_shows_carriers_bytes_and_reasons() {
    let broker = TestBroker::start();
    let shared = Shared::new(&broker);
    use_rings(&shared);
    let words = shared.memory_a.slot(shared.slot_a.slot);
    words.reader[1].head.fetch_or(FROZEN, SeqCst);
    words.counters[0].ring_tx.store(500, Relaxed);
    words.counters[1].ring_tx.store(70, Relaxed);
    words.counters[1].kernel_tx.store(8, Relaxed);
    words.counters[1].reason.store(Reason::Stalled as u32, Relaxed);
    shared.a.page().totals.seen.store(3, Relaxed);
    shared.a.page().reasons[Reason::Short as usize].store(2, Relaxed);
    shared.b.page().reasons[Reason::Short as usize].store(5, Relaxed);
    shared.b.page().reasons[63].store(1, Relaxed);

    let status = broker.status();
    let pid = std::process::id();
    assert_eq!((status.version, status.address), (sidestep_abi::VERSION, broker.address.to_string()));
    assert_eq!(status.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [pid, pid]);
    let own = std::env::current_exe().expect("own path");
    assert!(own.ends_with(&status.processes[0].exe), "{}", status.processes[0].exe);
    let totals = &status.processes[0].totals;
    assert_eq!((totals.seen, totals.ring_tx, totals.ring_rx), (3, 500, 0), "bytes of live connections count");
    assert_eq!((status.processes[1].totals.ring_tx, status.processes[1].totals.ring_rx), (70, 0));
    let [link] = &status.links[..] else { panic!("{:?}", status.links) };
    assert_eq!((link.slots_used, link.ring_size as usize), (1, shared.memory_a.ring_size));
    assert!(link.memory_bytes >= 4096 && link.memory_bytes < 1 << 20, "{}", link.memory_bytes);
    let [connection] = &status.connections[..] else { panic!("{:?}", status.connections) };
    assert_eq!(connection.id, format!("{}.{}", shared.slot_a.link, shared.slot_a.slot));
    // The first to offer, the client, is side 0.
    assert_eq!(connection.local, shared.streams.0.local_addr().expect("address").to_string());
    assert_eq!(connection.remote, shared.streams.1.local_addr().expect("address").to_string());
    let [there, back] = &connection.directions;
    assert_eq!((there.carrier, there.ring_bytes, there.kernel_bytes), (Carrier::Ring, 500, 0));
    assert_eq!((there.written_to, there.read_to, there.reason.as_deref()), (1030, Some(1020), None));
    assert_eq!((back.carrier, back.ring_bytes, back.kernel_bytes), (Carrier::Kernel, 70, 8));
    assert_eq!((back.read_to, back.reason.as_deref()), (None, Some("stalled")));
    assert_eq!(status.reasons.get("short"), Some(&7));
    assert_eq!(status.reasons.get("code-63"), Some(&1), "unknown to this version, but not hidden");

    drop(shared);
    wait_for("both are gone", || broker.status().processes.is_empty().then_some(()));
    let status = broker.status();
    assert_eq!((status.reasons.get("short"), status.totals.seen), (Some(&7), 3), "the dead still count");
}
