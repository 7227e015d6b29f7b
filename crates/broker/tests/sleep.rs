//! While nothing happens, the broker's threads sleep. Needs root.

use crate::common::users::{MALLORY, as_user};
use crate::common::{FakeMember, tcp_pair, wait_for};
use sidestep_broker::broker::offers::RECHECK;
use sidestep_broker::listen::Address;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// A broker of a user who has no other broker: each starting broker connects to the others of its user, to see whether they
/// live.
struct Broker {
    dir: tempfile::TempDir,
    child: Child,
}

impl Broker {
    fn start() -> Broker {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).expect("chmod");
        std::os::unix::fs::chown(dir.path(), Some(MALLORY), Some(MALLORY)).expect("this test needs root");
        // In a directory that the user can read.
        let program = dir.path().join("sidestepd");
        let copied =
            Command::new("install").args(["-m", "755", env!("CARGO_BIN_EXE_sidestepd")]).arg(&program).status();
        assert!(copied.expect("install (coreutils)").success());
        let mut command = Command::new(program);
        command.args(["--idle-exit", "0", "--address"]).arg(dir.path().join("broker"));
        command.env("XDG_RUNTIME_DIR", dir.path()).uid(MALLORY).gid(MALLORY);
        let child = command.spawn().expect("spawn");
        let broker = Broker { dir, child };
        wait_for("it listens", || broker.address().connect().ok());
        broker
    }

    fn address(&self) -> Address {
        Address::Path(self.dir.path().join("broker"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often its threads have gone to sleep.
fn sleeps(broker: &Broker) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", broker.child.id())).expect("/proc").flatten();
    let count = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("a counter");
        line.trim().parse::<u64>().expect("a number")
    };
    tasks.map(|task| count(std::fs::read_to_string(task.path().join("status")).expect("/proc"))).sum()
}

/// Waiting offers are looked at from time to time. Offers that were paired are not.
#[test]
fn with_members_and_connections_it_sleeps() {
    let broker = Broker::start();
    let [a, b] = [(); 2].map(|()| as_user(MALLORY, || FakeMember::join(&broker.address(), 4096)));
    let streams: Vec<_> = (0..10).map(|_| tcp_pair("127.0.0.1")).collect();
    for (number, (client, _)) in (0..).zip(&streams) {
        as_user(MALLORY, || a.offer(number, client));
    }
    as_user(MALLORY, || a.expect_silence()); // they wait
    for (number, (_, server)) in (0..).zip(&streams) {
        as_user(MALLORY, || b.offer(number, server));
    }
    b.expect_link();
    for number in 0..10 {
        b.expect_slot(number);
    }
    let mut before = sleeps(&broker);
    wait_for("what they said is worked off", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = sleeps(&broker);
        (std::mem::replace(&mut before, now) == now).then_some(())
    });
    std::thread::sleep(RECHECK + RECHECK / 5);
    assert_eq!(sleeps(&broker), before, "it woke up");
}
