//! A descriptor from a member can block its last close for as long as the member likes. That delays the member's own trust
//! domain. It delays no other domain, and not the end of the broker.

use crate::common;
use crate::common::users::{CAROL, MALLORY, as_user};
use crate::common::{FakeMember, connect, receive, tcp_pair, wait_for};
use crate::process::Daemon;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt};
use rustix::process::Signal;
use sidestep_abi::msg::{Kind, LEN, Msg};
use sidestep_broker::client::Operator;
use sidestep_broker::listen::Address;
use sidestep_broker::wire::{self, Incoming};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One test at a time: a process that another test starts would have copies of this test's descriptors for a moment.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time limit for calls that wait for nobody.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A socket whose last close waits for an hour, or until the other end is closed.
fn lingering() -> (OwnedFd, TcpStream) {
    let (ours, theirs) = tcp_pair("127.0.0.1");
    sockopt::set_socket_linger(&ours, Some(Duration::from_secs(3600))).expect("linger");
    ours.set_nonblocking(true).expect("non-blocking");
    while std::io::Write::write(&mut &ours, &[0; 65536]).is_ok() {}
    (ours.into(), theirs)
}

/// A descriptor whose last close waits until `Held` lets go: it is in an epoll set whose mutex is held.
fn stuck() -> (OwnedFd, OwnedFd, sidestep_testkit::held::Held) {
    let set = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let ours = common::unix_socket();
    epoll::add(&set, &ours, EventData::new_u64(1), EventFlags::empty()).expect("add");
    let held = sidestep_testkit::held::Held::new(&set);
    (ours, set, held)
}

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[&OwnedFd]) {
    try_send(socket, bytes, fds).expect("send");
}

fn try_send(socket: &OwnedFd, bytes: &[u8], fds: &[&OwnedFd]) -> rustix::io::Result<usize> {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| fd.as_fd()).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[std::io::IoSlice::new(bytes)], &mut control, flags)
}

fn hello() -> [u8; LEN] {
    Msg { arg: 4096, ..Msg::new(Kind::Hello) }.to_bytes()
}

fn joined(address: &Address) -> OwnedFd {
    let socket = connect(address);
    wire::send(socket.as_fd(), &Msg { arg: 4096, ..Msg::new(Kind::Hello) }, None).expect("hello");
    receive(&socket).expect("welcome");
    socket
}

/// Checks that two members of another domain are served.
fn works(address: &Address) {
    let began = Instant::now();
    let (a, b) = as_user(CAROL, || (FakeMember::join(address, 4096), FakeMember::join(address, 4096)));
    let streams = tcp_pair("127.0.0.1");
    as_user(CAROL, || {
        a.bell(0);
        a.offer(1, &streams.0);
        b.offer(2, &streams.1);
    });
    a.expect_link();
    b.expect_link();
    b.expect(Kind::PeerDoorbell);
    assert_eq!(a.expect_slot(1).slot, b.expect_slot(2).slot);
    Operator::connect(address).and_then(|operator| operator.status()).expect("the operator is answered");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

/// A way to make the broker close a descriptor.
struct Way {
    what: &'static str,
    /// The sender is a member, and not a connection that has sent no greeting.
    joins: bool,
    hangs_up: bool,
    send: fn(&OwnedFd, &OwnedFd),
}

fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").expect("open").into()
}

const WAYS: [Way; 7] = [
    Way { what: "with a greeting", joins: false, hangs_up: false, send: |socket, fd| send(socket, &hello(), &[fd]) },
    Way {
        what: "with an offer",
        joins: true,
        hangs_up: false,
        send: |socket, fd| {
            let cookie = sockopt::socket_cookie(fd).expect("cookie");
            send(socket, &Msg { offer: 1, arg: cookie, ..Msg::new(Kind::Offer) }.to_bytes(), &[fd]);
        },
    },
    Way {
        what: "as a doorbell",
        joins: true,
        hangs_up: false,
        send: |socket, fd| send(socket, &Msg::new(Kind::Doorbell).to_bytes(), &[fd]),
    },
    Way {
        what: "as a surplus descriptor",
        joins: true,
        hangs_up: false,
        send: |socket, fd| send(socket, &Msg::new(Kind::Offer).to_bytes(), &[&null(), fd, &null()]),
    },
    Way { what: "with garbage", joins: true, hangs_up: false, send: |socket, fd| send(socket, &[7; 13], &[fd]) },
    Way {
        what: "behind what ends the membership",
        joins: true,
        hangs_up: false,
        send: |socket, fd| {
            send(socket, &Msg { kind: 99, ..Msg::new(Kind::Hello) }.to_bytes(), &[]);
            (0..50).for_each(|_| send(socket, &Msg::new(Kind::Status).to_bytes(), &[&null()]));
            send(socket, &hello(), &[fd]);
        },
    },
    Way { what: "and hangs up", joins: false, hangs_up: true, send: |socket, fd| send(socket, &hello(), &[fd]) },
];

impl Way {
    /// Sends the descriptor this way, so that the broker is the last to hold it.
    fn go(&self, broker: &Daemon, fd: OwnedFd) -> Option<OwnedFd> {
        let member = self.joins.then(|| as_user(MALLORY, || joined(&broker.address)));
        broker.stop();
        // A running broker may turn the connection away before anything is sent.
        let socket = member.unwrap_or_else(|| as_user(MALLORY, || connect(&broker.address)));
        as_user(MALLORY, || (self.send)(&socket, &fd));
        drop(fd);
        let socket = Some(socket).filter(|_| !self.hangs_up);
        broker.go_on();
        socket
    }
}

#[test]
fn a_socket_that_lingers_holds_up_neither_others_nor_the_end() {
    let _alone = alone();
    for way in WAYS {
        let mut broker = Daemon::start(&[]);
        let (ours, theirs) = lingering();
        let _socket = way.go(&broker, ours);
        (0..3).for_each(|_| works(&broker.address));
        let took = broker.terminate();
        assert!(took < AT_ONCE, "{}: {took:?}", way.what);
        drop(theirs);
    }
}

/// Descriptors that wait to be closed behind a blocked one count in its domain, even if few of them are connections.
#[test]
fn offers_that_linger_use_up_no_more_than_their_domain_has() {
    let _alone = alone();
    const LIMIT: u64 = 400;
    let broker = Daemon::limited(&[], Some(LIMIT));
    let (ours, theirs) = lingering();
    let _socket = WAYS[1].go(&broker, ours);
    let member = as_user(MALLORY, || joined(&broker.address));
    let (none, _other) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .expect("socket pair");
    sockopt::set_socket_linger(&none, Some(Duration::from_secs(3600))).expect("linger");
    let cookie = sockopt::socket_cookie(&none).expect("cookie");
    for offer in 0..2 * LIMIT {
        send(&member, &Msg { offer, arg: cookie, ..Msg::new(Kind::Offer) }.to_bytes(), &[&none]);
        let (refused, _) = receive(&member).expect("an answer");
        assert_eq!(refused.kind(), Some(Kind::Refused), "offer {offer}");
    }
    works(&broker.address);
    drop(theirs);
}

/// Number of threads of the broker that close sockets.
fn closers(broker: &Daemon) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", broker.child.id())).expect("/proc");
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.trim() == "linger").count()
}

/// A user comes again and again, and leaves sockets that linger each time. They count as those of one stay.
#[test]
fn sockets_that_linger_count_when_their_user_comes_again() {
    const MOST: usize = 128;
    const EACH: usize = 16;
    let _alone = alone();
    let broker = Daemon::start(&[]);
    let mut far_ends = Vec::new();
    for stay in 1..=MOST / EACH + 2 {
        let member = as_user(MALLORY, || joined(&broker.address));
        let due = MOST.min(stay * EACH);
        // On a busy machine the broker may be the first to close some of them, and the close here lingers.
        for offer in (0..8 * EACH as u64).take_while(|offer| *offer < EACH as u64 || closers(&broker) < due) {
            let (ours, theirs) = lingering();
            let cookie = sockopt::socket_cookie(&ours).expect("cookie");
            send(&member, &Msg { offer, arg: cookie, ..Msg::new(Kind::Offer) }.to_bytes(), &[&ours]);
            std::thread::spawn(move || drop(ours));
            far_ends.push(theirs);
        }
        drop(member);
        wait_for("they linger", || (closers(&broker) >= due).then_some(()));
        std::thread::sleep(Duration::from_millis(60)); // a receiver that has nothing more to do would end in this time
    }
    works(&broker.address);
    assert_eq!(closers(&broker), MOST);
}

#[test]
fn a_descriptor_that_cannot_be_closed_holds_up_nobody_else() {
    let _alone = alone();
    // An offered socket is identified first; this descriptor is no socket that could be.
    for way in WAYS.into_iter().filter(|way| way.what != "with an offer") {
        let broker = Daemon::start(&[]);
        let (ours, _set, held) = stuck();
        let socket = way.go(&broker, ours);
        (0..3).for_each(|_| works(&broker.address));
        // The domain itself waits.
        let neighbour = as_user(MALLORY, || connect(&broker.address));
        as_user(MALLORY, || wire::send(neighbour.as_fd(), &Msg::new(Kind::Hello), None)).expect("hello");
        std::thread::sleep(Duration::from_millis(100));
        assert!(matches!(wire::receive(neighbour.as_fd()), Incoming::Empty), "{}: the domain waits", way.what);
        drop((held, socket));
        let (welcome, _) = receive(&neighbour).unwrap_or_else(|| panic!("{}: the domain goes on", way.what));
        assert_eq!(welcome.kind(), Some(Kind::Welcome));
    }
}

#[test]
fn many_connections_that_are_turned_away_hold_up_nobody_else() {
    let _alone = alone();
    const LIMIT: u64 = 400;
    let broker = Daemon::limited(&[], Some(LIMIT));
    let (ours, _set, held) = stuck();
    // The first one blocks its domain's receiver. Those behind it fill the domain's quota, and more.
    let keeper = WAYS[0].go(&broker, ours);
    let flood = |n| {
        let connections = (0..n).map(|_| {
            let socket = connect(&broker.address);
            let _ = try_send(&socket, &hello(), &[&null()]); // it may be turned away already
            socket
        });
        as_user(MALLORY, || connections.collect::<Vec<_>>())
    };
    let sockets = flood(3 * LIMIT);
    works(&broker.address);
    // Then one blocks the thread that closes what is turned away, with as many behind it.
    let (other, _set, held_too) = stuck();
    let keeper_too = WAYS[0].go(&broker, other);
    drop(flood(3 * LIMIT));
    works(&broker.address);
    drop((keeper, keeper_too, sockets));
    works(&broker.address);
    drop((held, held_too));
    works(&broker.address);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", broker.child.id())).expect("/proc").count();
    wait_for("all is closed", || {
        // Parked connections are closed when the next one comes.
        works(&broker.address);
        (open() < 60).then_some(())
    });
}

/// Ends a flood of connections, also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Threads that connect faster than the broker accepts, so that there is always one connection more.
#[test]
fn connections_that_never_cease_hold_up_neither_members_nor_the_end() {
    let _alone = alone();
    let mut broker = Daemon::start(&[]);
    let member = as_user(CAROL, || FakeMember::join(&broker.address, 4096));
    let (address, is_over, made) = (broker.address.clone(), AtomicBool::new(false), AtomicUsize::new(0));
    let flood = || {
        as_user(MALLORY, || {
            while !is_over.load(SeqCst) {
                made.fetch_add(usize::from(address.connect().is_ok()), SeqCst);
            }
        });
    };
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        (0..4).for_each(|_| drop(scope.spawn(flood)));
        for arg in 1..=30 {
            let before = made.load(SeqCst);
            wait_for("the flood goes on", || (made.load(SeqCst) > before + 200).then_some(()));
            let began = Instant::now();
            member.send(Msg { arg, ..Msg::new(Kind::Settle) }, None);
            assert_eq!(member.expect(Kind::Settled).0.arg, arg);
            assert!(began.elapsed() < AT_ONCE, "question {arg}: {:?}", began.elapsed());
        }
        let took = broker.terminate();
        assert!(took < AT_ONCE, "{took:?}");
    });
}

/// Only in the kernel may the end take as long as a stranger likes: the address is free at once.
#[test]
fn the_address_is_free_although_something_cannot_be_closed() {
    let _alone = alone();
    let broker = Daemon::start(&[]);
    let (ours, _set, held) = stuck();
    let _socket = WAYS[0].go(&broker, ours);
    works(&broker.address);
    broker.signal(Signal::TERM);
    let address = broker.address.clone();
    wait_for("the address is free", || sidestep_broker::listen::listen(&address, false).ok());
    drop(held);
}

/// The kernel keeps all descriptors of a process for as long as one of its threads cannot end.
#[test]
fn members_hear_of_the_end_although_something_cannot_be_closed() {
    let _alone = alone();
    let broker = Daemon::start(&[]);
    let (ours, _set, held) = stuck();
    let _socket = WAYS[4].go(&broker, ours);
    let members: Vec<_> = as_user(CAROL, || (0..500).map(|_| joined(&broker.address)).collect());
    broker.signal(Signal::TERM);
    for member in &members {
        wait_for("the broker hangs up", || matches!(wire::receive(member.as_fd()), Incoming::End).then_some(()));
    }
    drop(held);
}
