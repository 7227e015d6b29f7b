//! One user's use of the broker does not keep another user from getting rings. Needs root.

use crate::common;
use crate::common::users::{CAROL, DAVE, MALLORY, as_user};
use crate::common::{FakeMember, Given, rung, tcp_pair, wait_for};
use crate::process::Daemon;
use rustix::event::epoll::{self, CreateFlags};
use rustix::fd::{AsFd, OwnedFd};
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::client::{Client, Operator};
use sidestep_broker::wire::{self, Incoming};
use sidestep_testkit::held::Held;
use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Limit of open files of the broker, as on a small machine.
const FILES: u64 = 3000;

/// Offers both ends, and waits until each has a slot, or one is refused. Then the other is refused, too, or would wait in vain.
fn outcome(a: &FakeMember, b: &FakeMember, user: u32, streams: &(TcpStream, TcpStream)) -> Result<(), u64> {
    as_user(user, || {
        a.offer(1, &streams.0);
        b.offer(2, &streams.1);
    });
    let mut slots = [false; 2];
    wait_for("an answer", || {
        for (member, has_slot) in [a, b].into_iter().zip(&mut slots) {
            match answer(member) {
                Some(Ok(())) => *has_slot = true,
                Some(Err(reason)) => return Some(Err(reason)),
                None => {}
            }
        }
        (slots == [true; 2]).then_some(Ok(()))
    })
}

/// The broker's answer, if it has come: a slot, or a reason. Descriptors that come with it are closed.
fn answer(member: &FakeMember) -> Option<Result<(), u64>> {
    loop {
        match wire::receive(member.socket.as_fd()) {
            Incoming::Record(record) if record.msg.kind() == Some(Kind::Slot) => return Some(Ok(())),
            Incoming::Record(record) if record.msg.kind() == Some(Kind::Refused) => return Some(Err(record.msg.arg)),
            Incoming::Record(_) => {}
            Incoming::Empty => return None,
            Incoming::Garbage { .. } | Incoming::End => panic!("not a member any more"),
        }
    }
}

/// Two hundred processes, each connected with each of the others.
fn flood_of_links(broker: &Daemon) -> Vec<FakeMember> {
    let members: Vec<_> = as_user(MALLORY, || (0..200).map(|_| FakeMember::join(&broker.address, 4096)).collect());
    let mut links = 0;
    'flood: for (i, a) in members.iter().enumerate() {
        for b in &members[..i] {
            match outcome(a, b, MALLORY, &tcp_pair("127.0.0.1")) {
                Ok(()) => links += 1,
                Err(reason) => {
                    assert_eq!(reason, Reason::FdLimit as u64);
                    break 'flood;
                }
            }
        }
    }
    assert!(links > 1000, "only {links}");
    members
}

/// Idle processes with as many doorbells as possible. Those that do not fit are hung up on.
fn flood_of_members(broker: &Daemon, user: u32) -> Vec<(OwnedFd, OwnedFd)> {
    let bell = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let one = |_| {
        let socket = common::connect(&broker.address);
        let _ = wire::send(socket.as_fd(), &Msg { arg: 4096, ..Msg::new(Kind::Hello) }, None);
        for place in 0..64 {
            let _ = wire::send(socket.as_fd(), &Msg { place, ..Msg::new(Kind::Doorbell) }, Some(bell.as_fd()));
        }
        (socket, bell.try_clone().expect("dup"))
    };
    as_user(user, || (0..1500).map(one).collect())
}

#[test]
fn one_user_cannot_take_everything() {
    sidestep_broker::server::raise_fd_limit();
    let broker = Daemon::limited(&[], Some(FILES));
    let links = flood_of_links(&broker);
    let members = flood_of_members(&broker, CAROL);
    // A third user comes late, and wants a ring.
    let began = Instant::now();
    let (a, b) = as_user(DAVE, || (FakeMember::join(&broker.address, 4096), FakeMember::join(&broker.address, 4096)));
    let bell = as_user(DAVE, || a.bell(7));
    let streams = tcp_pair("127.0.0.1");
    as_user(DAVE, || {
        a.offer(1, &streams.0);
        b.offer(2, &streams.1);
    });
    let memory = a.expect_link();
    a.expect_slot(1);
    b.expect_link();
    let (told, ringer) = b.expect(Kind::PeerDoorbell);
    assert_eq!((told.link, told.place), (memory.link, 7));
    rustix::io::write(ringer.expect("attached"), &1u64.to_ne_bytes()).expect("ring");
    b.expect_slot(2);
    memory.side_area(memory.side).doorbells[7].armed.store(1, SeqCst);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The survivor also learns of its peer's death.
    rung(&bell);
    drop(b);
    wait_for("the survivor is rung", || rung(&bell).then_some(()));
    let status = Operator::connect(&broker.address).and_then(|operator| operator.status()).expect("answered");
    let refused = |reason: Reason| status.refused.get(reason.name()).copied().unwrap_or(0);
    assert!(refused(Reason::FdLimit) > 0, "{:?}", status.refused);
    let of = |user| status.processes.iter().filter(|process| process.uid == user).count();
    assert_eq!((of(MALLORY), of(DAVE)), (200, 1));
    drop((links, members));
}

/// The end that waits is refused together with the end that found no room.
#[test]
fn both_ends_are_refused_when_there_is_room_for_one() {
    sidestep_broker::server::raise_fd_limit();
    let broker = Daemon::limited(&[], Some(400));
    let (a, b) =
        as_user(MALLORY, || (FakeMember::join(&broker.address, 4096), FakeMember::join(&broker.address, 4096)));
    let first = tcp_pair("127.0.0.1");
    as_user(MALLORY, || a.offer(1, &first.0));
    as_user(MALLORY, || a.expect_silence());
    let others = flood_of_members(&broker, MALLORY);
    as_user(MALLORY, || b.offer(2, &first.1));
    b.expect_refused(2, Reason::FdLimit);
    a.expect_refused(1, Reason::FdLimit);
    drop(others);
}

/// The first of them stays a member, although the broker hangs up on it when it wants more than there is.
#[test]
fn a_domain_gets_two_thirds_of_what_is_left() {
    sidestep_broker::server::raise_fd_limit();
    let broker = Daemon::limited(&[], Some(1000));
    let join = |user| {
        as_user(user, || {
            let joined = (0..).map(|_| {
                let socket = common::connect(&broker.address);
                wire::send(socket.as_fd(), &Msg { arg: 4096, ..Msg::new(Kind::Hello) }, None).map(|()| socket).ok()
            });
            let is_welcome = |socket: &OwnedFd| {
                wait_for("an answer", || match wire::receive(socket.as_fd()) {
                    Incoming::Record(record) => Some(record.msg.kind() == Some(Kind::Welcome)),
                    Incoming::End => Some(false),
                    _ => None,
                })
            };
            joined.map_while(|socket| socket.filter(is_welcome)).collect::<Vec<_>>()
        })
    };
    let first = join(MALLORY);
    let second = join(CAROL);
    let third = join(DAVE);
    let counts = [first.len(), second.len(), third.len()];
    for (count, expected) in counts.into_iter().zip([2 * 870 / 3, 2 * 870 / 9, 2 * 870 / 27]) {
        assert!(count.abs_diff(expected) < 20, "{counts:?}");
    }
    drop(first);
    let fourth = wait_for("what they gave back can be taken", || Some(join(DAVE)).filter(|j| j.len() > 200));
    drop((second, third, fourth));
}

/// Root of a container has the number of the broker's user, and may ask. The process that asks lives on without a connection.
#[test]
fn who_asks_the_broker_to_stay_leaves_descriptors_to_others() {
    sidestep_broker::server::raise_fd_limit();
    let broker = Daemon::limited(&[], Some(600));
    let asked = (0..1100).filter(|_| Client::connect(&broker.address).and_then(|client| client.stay()).is_ok()).count();
    assert!(asked > 100, "only {asked}");
    let join = || FakeMember::join(&broker.address, 4096);
    let (a, b) = as_user(DAVE, || (join(), join()));
    assert_eq!(outcome(&a, &b, DAVE, &tcp_pair("127.0.0.1")), Ok(()));
}

/// If two members hold the lock of memory, it is given back late. Until then it counts as theirs, however often they reconnect.
#[test]
fn memory_that_cannot_be_given_back_counts_for_those_who_share_it() {
    sidestep_broker::server::raise_fd_limit();
    let (limit, config) = (400, allow(&[MALLORY, CAROL]));
    let broker = Daemon::limited(&["--config", &config.path().to_string_lossy()], Some(limit));
    let join = |user| as_user(user, || FakeMember::join(&broker.address, 4096));
    let (mallory, carol) = (join(MALLORY), join(CAROL));
    let streams = tcp_pair("127.0.0.1");
    as_user(MALLORY, || mallory.offer(1, &streams.0));
    as_user(CAROL, || carol.offer(2, &streams.1));
    let memory = mallory.expect_link();
    carol.expect_link();
    let given = (mallory.expect_slot(1), carol.expect_slot(2));
    let held = Held::file(&memory.fd);
    as_user(MALLORY, || mallory.release(given.0));
    as_user(CAROL, || carol.release(given.1));
    // Each of these leaves memory to be given back behind the first one.
    for _ in 0..limit {
        let (mallory, carol) = (join(MALLORY), join(CAROL));
        let streams = tcp_pair("127.0.0.1");
        as_user(MALLORY, || {
            mallory.offer(1, &streams.0);
            mallory.send(Msg::new(Kind::Settle), None);
        });
        let answer = || common::receive(&mallory.socket).expect("an answer").0;
        let mut told = answer();
        if told.kind() == Some(Kind::Settled) {
            // It waits: if its other end is refused, so is it.
            as_user(CAROL, || carol.offer(2, &streams.1));
            told = answer();
        }
        if told.kind() == Some(Kind::Refused) {
            assert_eq!(told.arg, u64::from(Reason::FdLimit as u8));
            break;
        }
        let given = mallory.expect_slot(1);
        as_user(MALLORY, || {
            mallory.release(given);
            mallory.send(Msg::new(Kind::Settle), None);
        });
        mallory.expect(Kind::Settled);
        drop(carol);
        mallory.expect(Kind::Unlink);
    }
    let (a, b) = (join(DAVE), join(DAVE));
    assert_eq!(outcome(&a, &b, DAVE, &tcp_pair("127.0.0.1")), Ok(()));
    drop(held);
}

/// Links of a server with its peers, and descriptors for their doorbells.
fn links_and_bells(server: &FakeMember) -> (usize, usize) {
    let (mut links, mut bells) = (0, 0);
    while let Incoming::Record(record) = wire::receive(server.socket.as_fd()) {
        links += usize::from(record.msg.kind() == Some(Kind::Link));
        bells += usize::from(record.msg.kind() == Some(Kind::PeerDoorbell));
    }
    (links, bells)
}

/// By default a process has this many links, and descriptors for this many doorbells of its peers.
const LINKS: usize = 512;
const BELLS: usize = 512;

/// However many processes a user has, another user's get their links and doorbells with the same server.
#[test]
fn one_user_cannot_take_all_of_a_process() {
    sidestep_broker::server::raise_fd_limit();
    let config = allow(&[MALLORY, CAROL, DAVE]);
    let broker = Daemon::start(&["--config", &config.path().to_string_lossy()]);
    let server = as_user(CAROL, || FakeMember::join(&broker.address, 4096));
    let settled = |user, member: &FakeMember| {
        as_user(user, || member.send(Msg { arg: 1, ..Msg::new(Kind::Settle) }, None));
        while member.expect_any() != Kind::Settled {}
    };
    // A connection with the server, from a process with this many doorbells.
    let client = |user, doorbells| {
        let (client, streams) = (as_user(user, || FakeMember::join(&broker.address, 4096)), tcp_pair("127.0.0.1"));
        let bell = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
        as_user(user, || {
            (0..doorbells).for_each(|place| client.send(Msg { place, ..Msg::new(Kind::Doorbell) }, Some(&bell)));
            client.offer(1, &streams.0);
        });
        settled(user, &client);
        as_user(CAROL, || server.offer(1, &streams.1));
        let (told, _) = common::receive(&client.socket).expect("an answer");
        (client, streams, told)
    };
    let (mut clients, mut taken) = (Vec::new(), (0, 0));
    for n in 0..LINKS {
        clients.push(client(MALLORY, if n < 10 { 64 } else { 0 }));
        let (links, bells) = links_and_bells(&server);
        taken = (taken.0 + links, taken.1 + bells);
        let told = &clients[clients.len() - 1].2;
        if told.kind() == Some(Kind::Refused) {
            assert_eq!(told.arg, Reason::Memory as u64);
            break;
        }
    }
    settled(CAROL, &server);
    assert_eq!(clients.len(), 2 * LINKS / 3 + 1, "the last one was refused");
    assert!(taken.0.abs_diff(2 * LINKS / 3) <= 1 && taken.1.abs_diff(2 * BELLS / 3) <= 64, "{taken:?}");
    let other = client(DAVE, 64);
    assert_eq!(other.2.kind(), Some(Kind::Link));
    let bells = std::iter::from_fn(|| Some(server.expect_any()).filter(|kind| *kind != Kind::Slot));
    assert_eq!(bells.filter(|kind| *kind == Kind::PeerDoorbell).count(), 64);
}

/// Each user decides how much address space and cgroup memory its rings take.
#[test]
fn a_user_s_rings_are_no_larger_than_it_wishes() {
    let config = allow(&[MALLORY, CAROL]);
    let broker = Daemon::start(&["--config", &config.path().to_string_lossy()]);
    let join = |user, wish| as_user(user, || FakeMember::join(&broker.address, wish));
    let (small, large, other) = (join(CAROL, 8192), join(CAROL, 65536), join(MALLORY, 16 << 20));
    let ring_size = |(a, of_a): (&FakeMember, u32), (b, of_b): (&FakeMember, u32)| {
        let streams = tcp_pair("127.0.0.1");
        as_user(of_a, || a.offer(1, &streams.0));
        as_user(of_b, || b.offer(1, &streams.1));
        let (told, _) = b.expect(Kind::Link);
        b.expect_slot(1);
        a.expect(Kind::Link);
        a.expect_slot(1);
        told.arg
    };
    assert_eq!(ring_size((&small, CAROL), (&other, MALLORY)), 8192);
    assert_eq!(ring_size((&other, MALLORY), (&large, CAROL)), 65536);
    assert_eq!(ring_size((&small, CAROL), (&large, CAROL)), 65536, "among its own the larger wish counts");
}

/// Written memory counts as the writer's until both sides have released it.
#[test]
fn who_releases_nothing_gets_no_more() {
    const LARGEST: u64 = 16 << 20;
    let config = allow(&[MALLORY, CAROL, DAVE]);
    let broker = Daemon::start(&["--config", &config.path().to_string_lossy()]);
    let join = |user| as_user(user, || FakeMember::join(&broker.address, LARGEST));
    let (server, mallory, dave) = (join(CAROL), join(MALLORY), join(DAVE));
    // The server releases each connection at once. Returns how many are possible.
    let connections = |user, client: &FakeMember, releases: bool| {
        let one = |offer: &u64| {
            let streams = tcp_pair("127.0.0.1");
            as_user(user, || client.offer(*offer, &streams.0));
            as_user(CAROL, || server.offer(*offer, &streams.1));
            let slots = [&server, client].map(|member| {
                let (msg, _) = std::iter::from_fn(|| common::receive(&member.socket))
                    .find(|(msg, _)| msg.kind() != Some(Kind::Link))
                    .expect("an answer");
                Given { link: msg.link, slot: msg.slot as usize, side: msg.side as usize }
            });
            let is_slot = slots[0].link != 0;
            if is_slot {
                as_user(CAROL, || server.release(slots[0]));
            }
            if is_slot && releases {
                as_user(user, || client.release(slots[1]));
            }
            is_slot
        };
        (1..100).take_while(one).count()
    };
    let kept = connections(MALLORY, &mallory, false);
    assert!((5..30).contains(&kept), "{kept} of {LARGEST} bytes each");
    assert_eq!(connections(DAVE, &dave, true), 99);
}

/// A configuration that permits these users to share memory.
fn allow(users: &[u32]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("[[allow]]\nuids = {users:?}\n")).expect("write");
    file
}

/// The kernel counts records that wait in a socket as the memory of their sender, which is the broker.
#[test]
fn what_a_member_leaves_unread_takes_little_of_the_kernels_memory() {
    const ASKED: u64 = 100;
    let broker = Daemon::start(&[]);
    let (silent, other) = (FakeMember::join(&broker.address, 4096), FakeMember::join(&broker.address, 4096));
    for arg in 0..ASKED {
        silent.send(Msg { arg, ..Msg::new(Kind::Settle) }, None);
        // One thread reads both, so each question has an answer of its own.
        other.send(Msg { arg, ..Msg::new(Kind::Settle) }, None);
        other.expect(Kind::Settled);
    }
    broker.stop();
    let waiting = std::iter::from_fn(|| match wire::receive(silent.socket.as_fd()) {
        Incoming::Record(record) => Some(record),
        _ => None,
    });
    let waiting = waiting.count();
    assert!((1..=40).contains(&waiting), "{waiting} records wait in the socket");
    broker.go_on();
    let left = ASKED as usize - waiting;
    (0..left).for_each(|_| drop(silent.expect(Kind::Settled)));
}
