//! Nothing is left behind. Alone in this file, so that the process has no other test's descriptors.

mod common;

use common::{Shared, TestBroker, tcp_pair, wait_for};

/// Of this process, which is also the broker's.
fn descriptors_and_mappings() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    (fds, maps.lines().filter(|line| line.contains("memfd:sidestep")).count())
}

#[test]
fn the_death_of_both_leaves_nothing() {
    let broker = TestBroker::start();
    broker.status(); // it is set up
    let before = descriptors_and_mappings();
    for _ in 0..20 {
        let mut shared = Shared::new(&broker);
        shared.add();
        let _bells = (shared.a.bell(1), shared.b.bell(2));
        // Waits for an end that never comes.
        shared.a.offer(77, tcp_pair("127.0.0.1").0);
        assert_ne!(descriptors_and_mappings(), before);
    }
    wait_for("every member is buried", || broker.status().processes.is_empty().then_some(()));
    let status = broker.status();
    assert_eq!((status.links.len(), status.connections.len(), status.waiting_offers), (0, 0, 0));
    // (The broker may not have closed the connection of the first status when `before` was counted.)
    wait_for("all is closed and unmapped", || {
        let now = descriptors_and_mappings();
        (now.0 <= before.0 && now.1 == before.1).then_some(())
    });
}
