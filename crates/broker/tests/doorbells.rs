//! Doorbells: what a member does to its descriptors changes nothing for others, and ringing never blocks. The members are three
//! unprivileged users, and none of them is the broker's. Needs root.

use crate::common;

use crate::common::users::{CAROL, DAVE, MALLORY, as_user};
use crate::common::{FakeMember, Memory, TestBroker, rung, tcp_pair, wait_for};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, Mode, OFlags, fcntl_setfl};
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::trust::Trust;
use sidestep_testkit::held::Held;
use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Time limit of rings: the kernel has nothing to wait for.
const AT_ONCE: Duration = Duration::from_secs(1);

fn ring(ringer: &OwnedFd) {
    rustix::io::write(ringer, &1u64.to_ne_bytes()).expect("ring");
}

/// A broker of root that lets these three share memory.
fn broker() -> TestBroker {
    TestBroker::with(None, |settings| settings.trust = Trust::of_users(0, None, &[vec![MALLORY, CAROL, DAVE]]))
}

/// A member with one doorbell at place 3.
fn owner(broker: &TestBroker, user: u32) -> (FakeMember, OwnedFd) {
    as_user(user, || broker.bell_member(3))
}

/// The peer of an owner, with what it was given.
struct Peer {
    _member: FakeMember,
    memory: Memory,
    ringer: OwnedFd,
    _streams: (TcpStream, TcpStream),
}

fn peer_of(broker: &TestBroker, (owner, of): (&FakeMember, u32), user: u32) -> Peer {
    let member = as_user(user, || broker.join());
    let streams = tcp_pair("127.0.0.1");
    let number = u64::from(user);
    as_user(user, || member.offer(number, &streams.0));
    as_user(of, || owner.offer(number, &streams.1));
    let memory = member.expect_link();
    let (told, ringer) = member.expect(Kind::PeerDoorbell);
    assert_eq!(told.place, 3);
    member.expect_slot(number);
    Peer { _member: member, memory, ringer: ringer.expect("attached"), _streams: streams }
}

/// Checks that the broker still rings a survivor whose peer has died.
fn the_broker_rings(bell: &OwnedFd, place: usize, dying: Peer) {
    let side = 1 - dying.memory.side;
    rung(bell);
    dying.memory.side_area(side).doorbells[place].armed.store(1, SeqCst);
    drop(dying);
    wait_for("the survivor is rung", || rung(bell).then_some(()));
}

/// An owner with a doorbell, a hostile peer and an honest one.
struct Scene {
    broker: TestBroker,
    _owner: FakeMember,
    bell: OwnedFd,
    hostile: Peer,
    honest: Peer,
}

impl Scene {
    fn new() -> Scene {
        let broker = broker();
        let (owner, bell) = owner(&broker, CAROL);
        let [hostile, honest] = [MALLORY, DAVE].map(|user| peer_of(&broker, (&owner, CAROL), user));
        Scene { broker, _owner: owner, bell, hostile, honest }
    }
}

#[test]
fn what_a_peer_does_to_its_own_changes_nothing_for_others() {
    let Scene { broker, _owner, bell, hostile, honest } = Scene::new();
    let its_own = hostile.ringer;
    let heard = |after: &str| {
        rung(&bell);
        ring(&honest.ringer);
        assert!(rung(&bell), "{after}");
        assert!(!rung(&bell), "{after}: once");
    };
    heard("nothing");
    fcntl_setfl(&its_own, OFlags::empty()).expect("made blocking");
    heard("a peer has made its own blocking");
    rustix::io::write(&its_own, &(u64::MAX - 1).to_ne_bytes()).expect("filled");
    heard("a peer has filled its own");
    rustix::io::read(&its_own, &mut [0; 8]).expect("drained");
    heard("a peer has drained its own");
    let set = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&set, &its_own, EventData::new_u64(0), EventFlags::IN).expect("add");
    let held = Held::new(&set);
    heard("a peer holds a set that its own is in");
    drop(held);
    // The hostile peer may add the eventfd to sets in any mode.
    for flags in [EventFlags::ET, EventFlags::ET | EventFlags::ONESHOT, EventFlags::EXCLUSIVE, EventFlags::empty()] {
        epoll::delete(&set, &its_own).expect("delete");
        epoll::add(&set, &its_own, EventData::new_u64(0), EventFlags::IN | flags).expect("add");
        heard("a peer watches its own");
        rung(&set);
        heard("a peer has heard its own");
    }
    drop((set, its_own));
    heard("a peer has closed its own");
    broker.status();
    the_broker_rings(&bell, 3, honest);
}

#[test]
fn a_doorbell_whose_mutex_its_owner_holds_is_rung_at_once() {
    let Scene { broker: _broker, _owner, bell, hostile: _hostile, honest } = Scene::new();
    let held = Held::new(&bell);
    let began = Instant::now();
    (0..1000).for_each(|_| ring(&honest.ringer));
    assert!(began.elapsed() < AT_ONCE, "{:?} for a thousand rings", began.elapsed());
    drop(held);
    assert!(rung(&bell));
}

/// The last close of a file in an epoll set waits for the holder of the set's mutex. So the doorbell's owner must not make that
/// close.
#[test]
fn a_dead_peer_s_own_that_cannot_be_closed_holds_up_its_own_domain_alone() {
    let Scene { broker, _owner: owner, bell, hostile, honest } = Scene::new();
    let set = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    epoll::add(&set, &hostile.ringer, EventData::new_u64(0), EventFlags::IN).expect("add");
    let held = Held::new(&set);
    let Peer { _member: member, ringer, .. } = hostile;
    drop(ringer);
    drop(member);
    wait_for("the death is noticed", || (broker.status().processes.len() == 2).then_some(()));
    for _ in 0..3 {
        as_user(CAROL, || owner.send(Msg::new(Kind::Settle), None));
        while owner.expect_any() != Kind::Settled {}
        let newcomer = as_user(DAVE, || broker.join());
        as_user(DAVE, || newcomer.send(Msg::new(Kind::Settle), None));
        newcomer.expect(Kind::Settled);
    }
    the_broker_rings(&bell, 3, honest);
    drop(held);
    as_user(MALLORY, || broker.join());
}

/// The broker rings with an eventfd of its own.
#[test]
fn the_broker_wakes_a_survivor_whatever_others_hold() {
    let Scene { broker: _broker, _owner, bell, hostile, honest } = Scene::new();
    fcntl_setfl(&hostile.ringer, OFlags::empty()).expect("made blocking");
    rustix::io::write(&hostile.ringer, &(u64::MAX - 1).to_ne_bytes()).expect("filled");
    the_broker_rings(&bell, 3, honest);
    let ringer = hostile.ringer.try_clone().expect("dup");
    the_broker_rings(&bell, 3, hostile);
    drop(ringer);
}

/// The most expensive sets that the kernel permits: each ring wakes all of them.
#[test]
fn a_doorbell_that_is_in_hundreds_of_sets_is_rung_at_once() {
    let broker = broker();
    let (hostile, bell) = owner(&broker, MALLORY);
    as_user(MALLORY, || hostile.expect_silence()); // what the broker rings with is in it
    let mut sets = Vec::new();
    let mut watch = |what: &OwnedFd| {
        let set = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
        let added = epoll::add(&set, what, EventData::new_u64(0), EventFlags::IN | EventFlags::ET);
        sets.push(set.try_clone().expect("dup"));
        added.map(|()| set)
    };
    // Sets in sets, as deep and as many at each depth as permitted.
    let mut outermost = bell.try_clone().expect("dup");
    while let Ok(set) = watch(&outermost) {
        for _ in 0..600 {
            if watch(&outermost).is_err() {
                break;
            }
        }
        outermost = set;
    }
    assert!(sets.len() > 100, "only {} sets", sets.len());
    // If the kernel permits no more, the membership ends, or nobody can ring. A member that can ring is not delayed.
    let honest = as_user(DAVE, || broker.join());
    let streams = tcp_pair("127.0.0.1");
    as_user(DAVE, || honest.offer(1, &streams.0));
    as_user(MALLORY, || hostile.offer(1, &streams.1));
    let memory = honest.expect_link();
    let (msg, ringer) = common::receive(&honest.socket).expect("a member");
    let began = Instant::now();
    if msg.kind() == Some(Kind::PeerDoorbell) {
        let ringer = ringer.expect("attached");
        (0..100).for_each(|_| ring(&ringer));
    }
    assert!(began.elapsed() < AT_ONCE, "{:?} for a hundred rings", began.elapsed());
    let began = Instant::now();
    memory.side_area(1 - memory.side).doorbells[3].armed.store(1, SeqCst);
    drop(honest);
    wait_for("the death is noticed", || (broker.status().processes.len() == 1).then_some(()));
    assert!(began.elapsed() < AT_ONCE, "{:?} until the broker has rung", began.elapsed());
}

#[test]
fn a_place_keeps_its_doorbell() {
    let broker = broker();
    let (owner, first) = owner(&broker, CAROL);
    let second = as_user(CAROL, || owner.bell(3));
    let peer = peer_of(&broker, (&owner, CAROL), MALLORY);
    ring(&peer.ringer);
    assert_eq!((rung(&first), rung(&second)), (true, false));
}

/// A descriptor of any other kind is never written to, and its sender is no member any more.
#[test]
fn what_is_no_doorbell_ends_the_membership() {
    let broker = broker();
    let (reader, writer) = rustix::pipe::pipe().expect("pipe");
    let (tcp, _peer) = tcp_pair("127.0.0.1");
    let open = |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).expect("open");
    let full = rustix::event::eventfd(u32::MAX, rustix::event::EventfdFlags::empty()).expect("eventfd");
    rustix::io::write(&full, &(u64::MAX - 1 - u64::from(u32::MAX)).to_ne_bytes()).expect("filled, and it blocks");
    let timer =
        rustix::time::timerfd_create(rustix::time::TimerfdClockId::Monotonic, rustix::time::TimerfdFlags::empty());
    let watch = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::empty()).expect("inotify");
    let process = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    let (timer, process) = (timer.expect("timerfd"), process.expect("pidfd"));
    let files: [(&str, OwnedFd); 13] = [
        ("a full eventfd that blocks", full),
        ("a pipe's end to read", reader),
        ("a pipe's end to write", writer),
        ("a Unix socket", common::unix_socket()),
        ("a TCP socket", tcp.into()),
        ("a device", open("/dev/null", OFlags::RDWR)),
        ("a directory", open("/", OFlags::DIRECTORY)),
        ("a path", open("/", OFlags::PATH)),
        ("memory", rustix::fs::memfd_create("none", MemfdFlags::CLOEXEC).expect("memfd")),
        ("a file of /proc", open("/proc/self/mem", OFlags::RDWR)),
        ("a timer", timer),
        ("inotify", watch),
        ("a process", process),
    ];
    let before = violations(&broker);
    for (what, fd) in &files {
        let liar = as_user(MALLORY, || broker.join());
        as_user(MALLORY, || liar.send(Msg { place: 3, ..Msg::new(Kind::Doorbell) }, Some(fd)));
        assert!(common::receive(&liar.socket).is_none(), "{what}");
    }
    assert_eq!(violations(&broker) - before, files.len() as u64);
    let (owner, bell) = owner(&broker, CAROL);
    the_broker_rings(&bell, 3, peer_of(&broker, (&owner, CAROL), DAVE));
}

fn violations(broker: &TestBroker) -> u64 {
    broker.status().refused.get(Reason::BrokenPeer.name()).copied().unwrap_or(0)
}
