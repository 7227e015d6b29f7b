//! SIGHUP: the broker reads its list of users that may share memory again. Needs root.

use crate::common::users::{CAROL, DAVE, MALLORY, as_user};
use crate::common::{FakeMember, Memory, receive, tcp_pair, wait_for};
use crate::process::Daemon;
use rustix::process::Signal;
use sidestep_abi::Reason;
use sidestep_abi::msg::Kind;
use sidestep_broker::broker::hold::Scope;
use sidestep_broker::client::Operator;
use sidestep_testkit::Nested;
use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;

/// A broker of root with a configuration that can be changed.
struct Scene {
    dir: tempfile::TempDir,
    broker: Daemon,
}

impl Scene {
    fn new(text: &str) -> Scene {
        let dir = tempfile::tempdir().expect("temporary directory");
        let file = dir.path().join("config.toml");
        std::fs::write(&file, text).expect("write");
        let log = std::fs::File::create(dir.path().join("log")).expect("create");
        let broker = Daemon::logging(&["--config", file.to_str().expect("utf-8")], log);
        Scene { dir, broker }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.dir.path().join("config.toml"), text).expect("write");
        self.broker.signal(Signal::HUP);
    }

    /// Waits until the broker has complained `n` times.
    fn wait_for_complaints(&self, n: usize) {
        wait_for("the broker says what is wrong", || {
            let said = std::fs::read_to_string(self.dir.path().join("log")).expect("read");
            (said.matches("stays as it was").count() == n).then_some(())
        });
    }

    fn join(&self, user: u32) -> FakeMember {
        as_user(user, || FakeMember::join(&self.broker.address, 4096))
    }

    /// Outcome of a connection between two users.
    fn outcome(&self, users: [u32; 2]) -> Result<Connection, u64> {
        let members = users.map(|user| self.join(user));
        let streams = tcp_pair("127.0.0.1");
        as_user(users[0], || members[0].offer(1, &streams.0));
        as_user(users[1], || members[1].offer(2, &streams.1));
        let memory = match receive(&members[0].socket).expect("still a member") {
            (msg, _) if msg.kind() == Some(Kind::Refused) => return Err(msg.arg),
            (msg, fd) => Memory::new(msg, fd.expect("the memory is attached")),
        };
        let slot = members[0].expect_slot(1).slot;
        members[1].expect_link();
        members[1].expect_slot(2);
        Ok(Connection { memory, slot, _members: members, _streams: streams })
    }

    fn pairs_within_the_deadline(&self, users: [u32; 2]) -> Connection {
        wait_for("they may share memory", || self.outcome(users).ok())
    }
}

struct Connection {
    memory: Memory,
    slot: usize,
    _members: [FakeMember; 2],
    _streams: (TcpStream, TcpStream),
}

impl Connection {
    fn is_held(&self) -> bool {
        self.memory.slot(self.slot).hold.load(SeqCst) != 0
    }
}

const NO: Result<(), u64> = Err(Reason::UserPair as u64);

#[test]
fn who_may_share_memory_is_read_again() {
    let scene = Scene::new("[[allow]]\nuids = [4001, 4002]\n");
    let before = scene.outcome([MALLORY, CAROL]).expect("they may");
    let own = scene.outcome([CAROL, CAROL]).expect("one user");
    assert_eq!(scene.outcome([CAROL, DAVE]).map(drop), NO);
    scene.write("[[allow]]\nuids = [4002, 4003]\n");
    let _after = scene.pairs_within_the_deadline([CAROL, DAVE]);
    assert_eq!(scene.outcome([MALLORY, CAROL]).map(drop), NO);
    assert!(before.is_held(), "goes back to the kernel");
    assert!(!own.is_held(), "is not concerned");
    let operator = || Operator::connect(&scene.broker.address).expect("connected");
    assert_eq!(operator().status().expect("answered").pid, scene.broker.child.id(), "the same broker");
    // An attach frees what a detach has held, and not what is forbidden.
    operator().hold(Scope::All, false).expect("answered");
    assert!(before.is_held(), "attached, and forbidden all the same");
    scene.write("[[allow]]\nuids = [4001, 4002]\n");
    wait_for("they may share memory again", || (!before.is_held()).then_some(()));
}

#[test]
fn a_file_that_is_wrong_changes_nothing() {
    let scene = Scene::new("[[allow]]\nuids = [4001, 4002]\n");
    let connection = scene.outcome([MALLORY, CAROL]).expect("they may");
    let wrong = ["[[allow]]\nuids = [4002, 'no such user']\n", "[[allow]\n", "allow = 1\n"];
    for (n, wrong) in wrong.into_iter().enumerate() {
        scene.write(wrong);
        scene.wait_for_complaints(n + 1);
    }
    std::fs::remove_file(scene.dir.path().join("config.toml")).expect("remove");
    scene.broker.signal(Signal::HUP);
    scene.wait_for_complaints(4);
    scene.outcome([MALLORY, CAROL]).map(drop).expect("they may still");
    assert_eq!(scene.outcome([CAROL, DAVE]).map(drop), NO);
    assert!(!connection.is_held());
}

#[test]
fn users_can_be_named() {
    let nobody = nix::unistd::User::from_name("nobody").expect("passwd").expect("every Debian has one").uid.as_raw();
    let scene = Scene::new("[[allow]]\nuids = ['nobody', 4002]\n");
    scene.outcome([nobody, CAROL]).map(drop).expect("they may");
    assert_eq!(scene.outcome([nobody, DAVE]).map(drop), NO);
    scene.write("[[allow]]\nuids = [4003, 'nobody']\n");
    drop(scene.pairs_within_the_deadline([DAVE, nobody]));
}

#[test]
fn a_service_that_is_named_later_counts_for_members_that_are_there() {
    let name = format!("sidestep-later-{}.service", std::process::id());
    let service = Nested::new(&format!("system.slice/{name}"));
    service.enter();
    let scene = Scene::new(&format!("[[allow]]\nuids = [{MALLORY}, {DAVE}]\n"));
    let members = [MALLORY, CAROL].map(|user| scene.join(user));
    scene.write(&format!("[[allow]]\nservices = [\"{name}\"]\n"));
    let mut number = 0;
    wait_for("the two share memory", || {
        let streams = tcp_pair("127.0.0.1");
        number += 1;
        as_user(MALLORY, || members[0].offer(number, &streams.0));
        as_user(CAROL, || members[1].offer(number, &streams.1));
        let heard = receive(&members[0].socket).expect("still a member").0;
        (heard.kind() == Some(Kind::Link)).then_some(())
    });
}
