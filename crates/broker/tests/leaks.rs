//! The broker leaves nothing behind. A single test, so that the process has no descriptors of other tests.

use crate::common::{Shared, TestBroker, tcp_pair, wait_for};
use sidestep_abi::msg::{Kind, Msg};

/// Counts of this process, which is also the broker's.
fn descriptors_and_mappings() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    (fds, maps.lines().filter(|line| line.contains("memfd:sidestep")).count())
}

#[test]
fn whoever_dies_leaves_nothing() {
    let broker = TestBroker::start();
    broker.status(); // it is set up
    // No receiver runs then: the operator's ends with its connection.
    let fresh = wait_for("the operator's connection is closed", || {
        let now = descriptors_and_mappings();
        std::thread::sleep(std::time::Duration::from_millis(50));
        (descriptors_and_mappings() == now).then_some(now)
    });
    for _ in 0..20 {
        both_die(&broker);
    }
    leaves_nothing(&broker, fresh);
    for _ in 0..20 {
        one_dies_before_the_others_new_doorbell(&broker);
    }
    leaves_nothing(&broker, fresh);
}

fn both_die(broker: &TestBroker) {
    let mut shared = Shared::new(broker);
    shared.add();
    let _bells = (shared.a.bell(1), shared.b.bell(2));
    // The offer waits for an end that never comes.
    shared.a.offer(77, tcp_pair("127.0.0.1").0);
}

/// The survivor still has slots, and so the link. Nobody will ever ring its new doorbell by that link.
fn one_dies_before_the_others_new_doorbell(broker: &TestBroker) {
    let mut shared = Shared::new(broker);
    let (second, _) = shared.add();
    let Shared { a: survivor, b: dying, slot_a: first, .. } = shared;
    let _old = survivor.bell(1);
    drop(dying);
    wait_for("the broker has buried one of them", || (broker.status().processes.len() == 1).then_some(()));
    let _new = survivor.bell(2);
    survivor.send(Msg::new(Kind::Settle), None);
    survivor.expect(Kind::Settled);
    for slot in [first, second] {
        survivor.release(slot);
    }
    survivor.expect(Kind::Unlink);
}

fn leaves_nothing(broker: &TestBroker, fresh: (usize, usize)) {
    wait_for("every member is buried", || broker.status().processes.is_empty().then_some(()));
    let status = broker.status();
    assert_eq!((status.links.len(), status.connections.len(), status.waiting_offers), (0, 0, 0));
    wait_for("all is closed and unmapped", || {
        let now = descriptors_and_mappings();
        (now.0 <= fresh.0 && now.1 == fresh.1).then_some(())
    });
}
