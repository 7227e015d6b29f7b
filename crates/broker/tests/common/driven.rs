//! A broker without a thread of its own: the test is its main thread.

use super::DEADLINE;
use rustix::event::epoll::{self, CreateFlags, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sidestep_abi::msg::Msg;
use sidestep_broker::broker::{Broker, Poller, Settings};
use sidestep_broker::trust::Trust;
use sidestep_broker::wire::{self, Incoming, Record};
use std::time::Instant;

/// The main thread of a broker, with a clock that the test controls.
pub struct Driven {
    pub broker: Broker,
    epoll: OwnedFd,
}

impl Driven {
    pub fn new() -> Driven {
        let settings = Settings {
            address: "none".into(),
            trust: Trust::of_this_process(Default::default()),
            subordinates: Default::default(),
            across_namespaces: false,
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
        Driven { broker: Broker::new(settings, Poller(epoll.try_clone().expect("dup"))), epoll }
    }

    pub fn connected(&mut self, socket: OwnedFd) {
        self.broker.connected(socket);
        self.broker.settle();
    }

    /// Runs the broker until the member receives a record.
    pub fn answer(&mut self, member: &OwnedFd) -> Msg {
        self.record(member).msg
    }

    /// The same, with the descriptor.
    pub fn record(&mut self, member: &OwnedFd) -> Record {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match wire::receive(member.as_fd()) {
                Incoming::Record(record) => return record,
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

    pub fn recheck(&mut self, times: u32) {
        for _ in 0..times {
            self.broker.recheck(Instant::now());
            self.broker.settle();
        }
    }
}

/// The broker's end of a connection, and the other one.
pub fn connection() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("socket pair")
}
