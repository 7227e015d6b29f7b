//! What the members of a pod have counted is told of the pod. Needs root, for cgroups and network namespaces.

use crate::common::{FakeMember, TestBroker, connect, wait_for};
use sidestep_broker::listen::Address;
use sidestep_broker::status::Totals;
use sidestep_broker::trust::{Rules, Trust};
use sidestep_testkit::{Namespace, Nested};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// One of this test's.
fn uid(number: u32) -> String {
    format!("1f0b8a52-0003-4e5f-{number:04x}-{:012x}", std::process::id())
}

fn pod(number: u32) -> Nested {
    Nested::new(&format!("kubepods/burstable/pod{}/container", uid(number)))
}

fn received(bytes: u64) -> Totals {
    Totals { seen: 1, upgraded: 1, ring_rx: bytes, ..Totals::default() }
}

#[test]
fn each_pod_has_the_counts_of_its_members_also_of_ended_ones() {
    let directory = tempfile::tempdir().expect("a directory");
    let address = Address::Path(directory.path().join("broker"));
    let rules = Rules { same_pod: true, ..Rules::default() };
    let broker = TestBroker::at(address, None, |settings| settings.trust = Trust::new(0, None, rules));
    let (first, second) = (pod(1), pod(2));
    let network = Namespace::fresh();
    let join = |bytes| {
        let socket = network.run(|| connect(&broker.address));
        let member = FakeMember::join_by(socket, 4096);
        let totals = &member.page().totals;
        totals.seen.store(1, Ordering::Relaxed);
        totals.upgraded.store(1, Ordering::Relaxed);
        totals.ring_rx.store(bytes, Ordering::Relaxed);
        member
    };
    let _in_no_pod = join(100);
    first.enter();
    let (one, _other) = (join(3), join(4));
    second.enter();
    let _alone = join(5);
    Nested::leave_all();
    let mut both = received(3);
    both.add(&received(4));
    let expected = BTreeMap::from([(uid(1), both), (uid(2), received(5))]);
    let status = broker.status();
    assert_eq!((status.pods, status.other_pods), (expected.clone(), Totals::default()));
    drop(one);
    let status = wait_for("its end", || Some(broker.status()).filter(|status| status.counted().processes == 3));
    assert_eq!((status.pods, status.totals.ring_rx), (expected, 112));
}
