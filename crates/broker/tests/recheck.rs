//! The sockets of waiting offers are looked for repeatedly, by threads that their own domains can block. A single test, since
//! it measures the memory of the process. Needs root.

<<<<<<< HEAD
use crate::common::driven::{Driven, connection};
use crate::common::held::Held;
=======
use crate::common;

>>>>>>> mend-f
use crate::common::{tcp_pair, unix_socket};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::sockopt;
use sidestep_abi::msg::{Kind, Msg};
<<<<<<< HEAD
use sidestep_broker::wire;
=======
use sidestep_broker::broker::{Broker, Poller, Settings};
use sidestep_broker::trust::Trust;
use sidestep_broker::wire::{self, Incoming};
use sidestep_testkit::held::Held;
use std::time::Instant;

/// The main thread of a broker, with a clock that the test controls.
struct Driven {
    broker: Broker,
    epoll: OwnedFd,
}

impl Driven {
    fn new() -> Driven {
        let settings = Settings {
            address: "none".into(),
            trust: Trust::of_this_process(Default::default()),
            across_namespaces: false,
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
        Driven { broker: Broker::new(settings, Poller(epoll.try_clone().expect("dup"))), epoll }
    }

    fn connected(&mut self, socket: OwnedFd) {
        self.broker.connected(socket);
        self.broker.settle();
    }

    /// Runs the broker until the member receives a record.
    fn answer(&mut self, member: &OwnedFd) -> Msg {
        let deadline = Instant::now() + common::DEADLINE;
        loop {
            match wire::receive(member.as_fd()) {
                Incoming::Record(record) => return record.msg,
                Incoming::Empty => assert!(Instant::now() < deadline, "no answer"),
                _ => panic!("it hung up"),
            }
            let mut events = Vec::with_capacity(16);
            let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&limit)).expect("wait");
            for event in events {
                let (flags, number) = (event.flags, event.data.u64());
                if flags.contains(EventFlags::IN) {
                    self.broker.readable(number);
                }
            }
            self.broker.settle();
        }
    }

    fn recheck(&mut self, times: u32) {
        for _ in 0..times {
            self.broker.recheck(Instant::now());
            self.broker.settle();
        }
    }
}

/// The broker's end of a connection, and the other one.
fn connection() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("socket pair")
}
>>>>>>> mend-f

fn send(member: &OwnedFd, msg: Msg, fd: Option<&OwnedFd>) {
    wire::send(member.as_fd(), &msg, fd.map(AsFd::as_fd)).expect("send");
}

/// Memory of this process, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("since Linux 4.5");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn a_domain_that_keeps_its_receiver_waiting_is_not_asked_again_and_again() {
    let mut driven = Driven::new();
    let (ours, member) = connection();
    driven.connected(ours);
    send(&member, Msg { arg: 4096, ..Msg::new(Kind::Hello) }, None);
    assert_eq!(driven.answer(&member).kind(), Some(Kind::Welcome));
    let (client, server) = tcp_pair("127.0.0.1");
    let cookie = sockopt::socket_cookie(&client).expect("cookie");
    send(
        &member,
        Msg { offer: 1, arg: cookie, ..Msg::new(Kind::Offer) },
        Some(&client.try_clone().expect("dup").into()),
    );
    send(&member, Msg { arg: 7, ..Msg::new(Kind::Settle) }, None);
    assert_eq!(driven.answer(&member).kind(), Some(Kind::Settled));

    // The domain's receiver blocks in a close.
    let set = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
    let stuck = unix_socket();
    epoll::add(&set, &stuck, EventData::new_u64(0), EventFlags::empty()).expect("add");
    let held = Held::new(&set);
    let (ours, other) = connection();
    send(&other, Msg::new(Kind::Hello), Some(&stuck));
    drop(stuck);
    driven.connected(ours);
    driven.recheck(1000);
    let before = memory();
    driven.recheck(200_000);
    let grown = memory().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB for 200000 looks");

    // The receiver goes on.
    drop(held);
    send(&member, Msg { arg: 8, ..Msg::new(Kind::Settle) }, None);
    assert_eq!(driven.answer(&member).kind(), Some(Kind::Settled));
    drop((client, server));
    driven.recheck(1);
    assert_eq!(driven.answer(&member).kind(), Some(Kind::Refused));
}
