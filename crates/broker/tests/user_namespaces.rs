//! A pod with a user namespace of its own, which then owns the pod's network namespace: whoever is root in the pod can make any
//! address there. Needs root.

use crate::common::users::{CAROL, MALLORY, as_user};
use crate::common::{FakeMember, TestBroker, connect, receive, tcp_pair, wait_for};
use sidestep_abi::Reason;
use sidestep_abi::msg::Kind;
use sidestep_broker::listen::Address;
use sidestep_broker::trust::{Rules, Trust};
use sidestep_testkit::{Nested, run_in};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};

/// A process in a user namespace and a network namespace of its own.
struct Sandbox(Child);

impl Sandbox {
    fn new() -> Sandbox {
        let child = Command::new("unshare").args(["--user", "--map-root-user", "--net", "sleep", "60"]).spawn();
        let sandbox = Sandbox(child.expect("unshare of util-linux"));
        let network = |of: PathBuf| std::fs::read_link(of).ok();
        let ours = network("/proc/self/ns/net".into());
        wait_for("a network namespace", || network(sandbox.path()).filter(|it| Some(it) != ours.as_ref()));
        sandbox
            .run(|| assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().is_ok_and(|s| s.success())));
        sandbox
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.id()).into()
    }

    /// Runs `work` on a thread in the network namespace.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        run_in(&self.path(), work)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Cgroups of a pod, whose number is one of this test's.
fn pod(number: u32) -> Nested {
    let uid = format!("1f0b8a52-0002-4e5f-{number:04x}-{:012x}", std::process::id());
    Nested::new(&format!("kubepods/burstable/pod{uid}/container"))
}

/// A broker at a path, as the members of all network namespaces reach it.
fn broker(directory: &tempfile::TempDir, same_pod: bool) -> TestBroker {
    let path = directory.path().join("broker");
    let rules = Rules { same_pod, ..Rules::default() };
    let broker = TestBroker::at(Address::Path(path.clone()), None, |it| it.trust = Trust::new(0, None, rules));
    for (path, mode) in [(directory.path(), 0o755), (&path, 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    }
    broker
}

/// Two members in the sandbox; `between`: before the second one joins.
fn members(broker: &TestBroker, sandbox: &Sandbox, users: [u32; 2], between: impl FnOnce()) -> [FakeMember; 2] {
    let joined = |user| {
        let socket = sandbox.run(|| as_user(user, || connect(&broker.address)));
        as_user(user, || FakeMember::join_by(socket, 4096))
    };
    let first = joined(users[0]);
    between();
    [first, joined(users[1])]
}

fn offer_both(members: &[FakeMember; 2], users: [u32; 2], streams: &(TcpStream, TcpStream)) {
    as_user(users[0], || members[0].offer(1, &streams.0));
    as_user(users[1], || members[1].offer(2, &streams.1));
}

/// Err: the reason of the refusal.
fn outcome(member: &FakeMember) -> Result<(), u64> {
    match receive(&member.socket).expect("still a member").0 {
        msg if msg.kind() == Some(Kind::Refused) => Err(msg.arg),
        msg => {
            assert_eq!(msg.kind(), Some(Kind::Link));
            member.expect_slot(1);
            Ok(())
        }
    }
}

const BOTH: [u32; 2] = [MALLORY, CAROL];

#[test]
fn a_pod_may_use_its_own_network_namespace_and_nobody_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let sandbox = Sandbox::new();
    let (own, other) = (pod(1), pod(2));
    let same_pod = broker(&directory, true);
    let tried = |users| {
        let both = members(&same_pod, &sandbox, users, || ());
        let streams = sandbox.run(|| tcp_pair("127.0.0.1"));
        offer_both(&both, users, &streams);
        outcome(&both[0])
    };
    let no_proof = Err(Reason::Namespace as u64);
    assert_eq!(tried(BOTH), no_proof, "in no pod");
    assert_eq!(tried([MALLORY; 2]), no_proof, "a user can make such a namespace");
    own.enter();
    assert_eq!((tried(BOTH), tried([MALLORY; 2])), (Ok(()), Ok(())));

    // Both ends have sockets of one namespace, and one of them is in another pod.
    for users in [BOTH, [MALLORY; 2]] {
        own.enter();
        let both = members(&same_pod, &sandbox, users, || other.enter());
        let streams = sandbox.run(|| tcp_pair("127.0.0.1"));
        offer_both(&both, users, &streams);
        wait_for("both wait", || (same_pod.status().waiting_offers == 2).then_some(()));
    }

    own.enter();
    let both = members(&same_pod, &sandbox, [MALLORY; 2], || ());
    let streams = sandbox.run(|| tcp_pair("127.0.0.1"));
    Nested::leave_all();
    offer_both(&both, [MALLORY; 2], &streams);
    assert_eq!(outcome(&both[0]), Err(Reason::UserPair as u64), "moved meanwhile");

    own.enter();
    drop(same_pod);
    let strict = broker(&directory, false);
    let both = members(&strict, &sandbox, BOTH, || ());
    let streams = sandbox.run(|| tcp_pair("127.0.0.1"));
    offer_both(&both, BOTH, &streams);
    assert_eq!(outcome(&both[0]), no_proof, "the operator has not said so");
}
