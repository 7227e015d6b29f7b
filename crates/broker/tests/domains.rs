//! Whoever has many users, as a container or a user with subordinate users has, is not many domains. Needs root.

use crate::common::users::{CAROL, as_user};
use crate::common::{TestBroker, connect, tcp_pair};
use rustix::fd::OwnedFd;
use sidestep_abi::Reason;
use sidestep_broker::listen::Address;
use sidestep_broker::subordinates::Subordinates;
use sidestep_testkit::Namespace;
use std::os::unix::fs::PermissionsExt;

/// More than there are receivers.
const MANY: u32 = 1100;
const FIRST: u32 = 100_000;

/// One connection of each of many users.
fn flood(broker: &TestBroker) -> Vec<OwnedFd> {
    (FIRST..FIRST + MANY).map(|user| as_user(user, || connect(&broker.address))).collect()
}

/// Checks that another user still gets a ring.
fn works(broker: &TestBroker) {
    let (a, b) = as_user(CAROL, || (broker.join(), broker.join()));
    let streams = tcp_pair("127.0.0.1");
    as_user(CAROL, || {
        a.offer(1, &streams.0);
        b.offer(2, &streams.1);
    });
    a.expect_link();
    b.expect_link();
    assert_eq!(a.expect_slot(1).slot, b.expect_slot(2).slot);
}

#[test]
fn subordinate_users_of_one_owner_leave_receivers_to_others() {
    sidestep_broker::server::raise_fd_limit();
    let subordinates = Subordinates::parse(&format!("mallory:{FIRST}:65536\n"));
    let broker = TestBroker::with(None, |settings| settings.subordinates = subordinates);
    let connections = flood(&broker);
    works(&broker);
    drop(connections);
}

#[test]
fn users_of_another_network_namespace_leave_receivers_to_others() {
    sidestep_broker::server::raise_fd_limit();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("broker");
    let broker = TestBroker::at(Address::Path(path.clone()), None, |_| {});
    for (path, mode) in [(directory.path(), 0o755), (&path, 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    }
    let container = Namespace::fresh();
    let connections = container.run(|| flood(&broker));
    works(&broker);
    let refused = broker.status().refused.get(Reason::Memory.name()).copied().unwrap_or(0);
    assert!(refused >= 1000, "{refused} of {MANY} were turned away");
    drop(connections);
}
