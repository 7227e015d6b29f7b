//! Whoever has many users, as a container or a user with subordinate users has, is not many domains. Needs root.

use crate::common::users::{CAROL, as_user};
use crate::common::{FakeMember, TestBroker, connect, tcp_pair};
use crate::process::Daemon;
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
fn flood(address: &Address) -> Vec<OwnedFd> {
    (FIRST..FIRST + MANY).map(|user| as_user(user, || connect(address))).collect()
}

/// Checks that another user still gets a ring.
fn works(address: &Address) {
    let (a, b) = as_user(CAROL, || (FakeMember::join(address, 4096), FakeMember::join(address, 4096)));
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
    let connections = flood(&broker.address);
    works(&broker.address);
    drop(connections);
}

/// As in a pod of the chart: process 1 has the host's files, and the broker those of an image.
#[test]
fn a_container_s_broker_knows_the_subordinate_users_of_the_host() {
    sidestep_broker::server::raise_fd_limit();
    let script = format!(
        "mount -t tmpfs host /etc && echo mallory:{FIRST}:65536 >/etc/subuid &&
         unshare --mount sh -c 'mount -t tmpfs image /etc && exec \"$@\"' container \"$@\"; exit"
    );
    let host = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script, "host"];
    let broker = Daemon::limited_by(&host, &["--host-cgroups"], None);
    let connections = flood(&broker.address);
    works(&broker.address);
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
    let connections = container.run(|| flood(&broker.address));
    works(&broker.address);
    let refused = broker.status().refused.get(Reason::Memory.name()).copied().unwrap_or(0);
    assert!(refused >= 1000, "{refused} of {MANY} were turned away");
    drop(connections);
}
