//! A broker in a thread, and members played by the test.
#![allow(dead_code)] // each test file uses its part

pub mod driven;
pub mod memory;
pub mod users;

use memory::Mapped;
use rustix::event::epoll::{self, CreateFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_abi::page::Page;
use sidestep_broker::broker::Settings;
use sidestep_broker::client::Operator;
use sidestep_broker::listen::{Address, listen};
use sidestep_broker::operator;
use sidestep_broker::server::{Ended, Server, Signals};
use sidestep_broker::status::Status;
use sidestep_broker::trust::Trust;
use sidestep_broker::wire::{self, Incoming};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit for events that take milliseconds unless something is broken.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Calls `ready` until it returns something.
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub struct TestBroker {
    pub address: Address,
    thread: Option<JoinHandle<Ended>>,
    stop: Option<UnixStream>,
}

impl TestBroker {
    pub fn start() -> TestBroker {
        TestBroker::with(None, |_| {})
    }

    /// At an address of its own.
    pub fn with(idle_exit: Option<Duration>, change: impl FnOnce(&mut Settings)) -> TestBroker {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sidestep-test-{}-{n}", std::process::id());
        TestBroker::at(Address::Abstract(name), idle_exit, change)
    }

    pub fn at(address: Address, idle_exit: Option<Duration>, change: impl FnOnce(&mut Settings)) -> TestBroker {
        let mut settings = Settings {
            address: address.to_string(),
            trust: Trust::of_this_process(Default::default()),
            subordinates: Default::default(),
            across_namespaces: false,
        };
        change(&mut settings);
        let listener = listen(&address, false).expect("the address is free");
        let operators = operator::listen(&address).expect("a place for the operator's socket");
        let (stop, stopped) = UnixStream::pair().expect("socket pair");
        let signals = Signals { stop: stopped.into(), reload: None };
        let serve = move || {
            Server::new(listener, Some(operators), settings, signals, idle_exit).expect("set up").run().expect("run")
        };
        TestBroker { address, thread: Some(std::thread::spawn(serve)), stop: Some(stop) }
    }

    pub fn operator(&self) -> Operator {
        Operator::connect(&self.address).expect("the broker accepts")
    }

    pub fn status(&self) -> Status {
        self.operator().status().expect("the broker answers")
    }

    pub fn join(&self) -> FakeMember {
        FakeMember::join(&self.address, 4096)
    }

    /// A member with a doorbell at this place.
    pub fn bell_member(&self, place: u32) -> (FakeMember, OwnedFd) {
        let member = self.join();
        let bell = member.bell(place);
        (member, bell)
    }

    /// Waits until the broker ends by itself, and returns how.
    pub fn ended(mut self) -> Ended {
        self.thread.take().expect("running").join().expect("the broker does not panic")
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            if !std::thread::panicking() {
                result.expect("the broker does not panic");
            }
        }
    }
}

/// A member, honest or hostile: it can send anything.
pub struct FakeMember {
    pub socket: OwnedFd,
    pub number: u64,
    pub page: Mapped,
}

/// The slot that a member was assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub link: u32,
    pub slot: usize,
    pub side: usize,
}

pub fn connect(address: &Address) -> OwnedFd {
    wait_for("the broker accepts", || match address.connect() {
        Err(rustix::io::Errno::AGAIN) => None,
        connected => Some(connected.expect("the broker is there")),
    })
}

impl FakeMember {
    pub fn join(address: &Address, ring_size: u64) -> FakeMember {
        FakeMember::join_by(connect(address), ring_size)
    }

    pub fn join_by(socket: OwnedFd, ring_size: u64) -> FakeMember {
        wire::send(socket.as_fd(), &Msg { arg: ring_size, ..Msg::new(Kind::Hello) }, None).expect("hello");
        let (welcome, page) = receive(&socket).expect("an answer");
        assert_eq!(welcome.kind(), Some(Kind::Welcome));
        let page = Mapped::new(&page.expect("the page is attached"), size_of::<Page>());
        FakeMember { socket, number: welcome.arg, page }
    }

    pub fn page(&self) -> &Page {
        self.page.at(0)
    }

    pub fn pending(&self) -> u32 {
        self.page().pending.load(Ordering::Acquire)
    }

    pub fn send(&self, msg: Msg, fd: Option<&OwnedFd>) {
        wire::send(self.socket.as_fd(), &msg, fd.map(|fd| fd.as_fd())).expect("send");
    }

    pub fn offer(&self, number: u64, socket: impl AsFd) {
        let cookie = sockopt::socket_cookie(&socket).expect("cookie");
        let msg = Msg { offer: number, arg: cookie, ..Msg::new(Kind::Offer) };
        // The kernel limits a user's descriptors in flight, and what a socket holds, so the send may have to be repeated.
        wait_for("it can be sent", || match wire::send(self.socket.as_fd(), &msg, Some(socket.as_fd())) {
            Err(Errno::TOOMANYREFS | Errno::AGAIN) => None,
            sent => {
                sent.expect("send");
                Some(())
            }
        });
    }

    /// Offers a socket again when the broker asks for that.
    pub fn offer_again(&self, number: u64, socket: impl AsFd) {
        let (msg, _) = self.expect(Kind::Again);
        assert_eq!((msg.offer, msg.arg), (number, sockopt::socket_cookie(&socket).expect("cookie")));
        self.offer(number, socket);
    }

    pub fn release(&self, given: Given) {
        let Given { link, slot, side } = given;
        self.send(Msg { link, slot: slot as u32, side: side as u32, ..Msg::new(Kind::Release) }, None);
    }

    pub fn bell(&self, place: u32) -> OwnedFd {
        let bell = epoll::create(CreateFlags::CLOEXEC).expect("epoll");
        self.send(Msg { place, ..Msg::new(Kind::Doorbell) }, Some(&bell));
        bell
    }

    /// The next record; it must be of this kind.
    pub fn expect(&self, kind: Kind) -> (Msg, Option<OwnedFd>) {
        let (msg, fd) = receive(&self.socket).unwrap_or_else(|| panic!("the broker hung up instead of {kind:?}"));
        assert_eq!(msg.kind(), Some(kind), "{msg:?}");
        (msg, fd)
    }

    /// The kind of the next record.
    pub fn expect_any(&self) -> Kind {
        let (msg, _) = receive(&self.socket).expect("the broker hung up");
        msg.kind().expect("a record of ours")
    }

    pub fn expect_slot(&self, offer: u64) -> Given {
        let (msg, _) = self.expect(Kind::Slot);
        assert_eq!(msg.offer, offer);
        Given { link: msg.link, slot: msg.slot as usize, side: msg.side as usize }
    }

    pub fn expect_refused(&self, offer: u64, reason: sidestep_abi::Reason) {
        let (msg, _) = self.expect(Kind::Refused);
        assert_eq!((msg.offer, msg.arg), (offer, reason as u64));
    }

    pub fn expect_link(&self) -> Memory {
        let (msg, fd) = self.expect(Kind::Link);
        Memory::new(msg, fd.expect("the memory is attached"))
    }

    pub fn expect_hangup(&self) {
        assert!(receive(&self.socket).is_none(), "the broker hangs up");
    }

    /// When this returns, everything that members of this domain sent before has been handled, and nothing was answered.
    pub fn expect_silence(&self) {
        // Work that the first question gives the receiver is done when the second one is answered.
        for number in [u64::MAX - 1, u64::MAX] {
            let unconnected = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("socket");
            self.offer(number, &unconnected);
            self.expect_refused(number, sidestep_abi::Reason::Short);
        }
    }
}

/// The next record, or None at the end of the connection.
pub fn receive(socket: &OwnedFd) -> Option<(Msg, Option<OwnedFd>)> {
    wait_for("a record", || match wire::receive(socket.as_fd()) {
        Incoming::Record(record) => Some(Some((record.msg, record.fd))),
        Incoming::End => Some(None),
        Incoming::Empty => None,
        Incoming::Garbage { .. } => panic!("the broker sent garbage"),
    })
}

/// Whether the doorbell has rung since the last look.
pub fn rung(bell: &OwnedFd) -> bool {
    let mut events = Vec::with_capacity(64);
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    epoll::wait(bell, rustix::buffer::spare_capacity(&mut events), Some(&now)).expect("a doorbell");
    !events.is_empty()
}

/// A link as a member sees it.
pub struct Memory {
    pub link: u32,
    pub side: usize,
    pub ring_size: usize,
    pub fd: OwnedFd,
    pub map: Mapped,
}

impl Memory {
    pub fn new(msg: Msg, fd: OwnedFd) -> Memory {
        let ring_size = msg.arg as usize;
        let map = Mapped::new(&fd, sidestep_abi::link::link_size(ring_size));
        Memory { link: msg.link, side: msg.side as usize, ring_size, fd, map }
    }

    pub fn header(&self) -> &sidestep_abi::link::Header {
        self.map.at(0)
    }

    pub fn slot(&self, slot: usize) -> &sidestep_abi::link::Slot {
        self.map.at(sidestep_abi::link::slot_at(slot))
    }

    pub fn side_area(&self, side: usize) -> &sidestep_abi::link::SideArea {
        self.map.at(sidestep_abi::link::side_at(side))
    }

    /// A byte of the ring that `side` writes.
    pub fn ring_byte(&self, slot: usize, side: usize, at: usize) -> &std::sync::atomic::AtomicU8 {
        self.map.at(sidestep_abi::link::ring_at(self.ring_size, slot, side) + at)
    }

    pub fn resident_bytes(&self) -> u64 {
        rustix::fs::fstat(&self.fd).expect("fstat").st_blocks as u64 * 512
    }
}

/// The two ends of a TCP connection: connecting and accepting.
pub fn tcp_pair(host: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((host, 0)).expect("bind");
    let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (server, _) = listener.accept().expect("accept");
    (client, server)
}

/// A Unix socket pair, for what is not TCP.
pub fn unix_socket() -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("socket")
}

/// Two members that share one connection, and where each of them sees it.
pub struct Shared {
    pub a: FakeMember,
    pub b: FakeMember,
    pub memory_a: Memory,
    pub memory_b: Memory,
    pub slot_a: Given,
    pub slot_b: Given,
    pub streams: (TcpStream, TcpStream),
}

impl Shared {
    pub fn new(broker: &TestBroker) -> Shared {
        let (a, b) = (broker.join(), broker.join());
        let streams = tcp_pair("127.0.0.1");
        a.offer(1, &streams.0);
        b.offer(2, &streams.1);
        let (memory_a, memory_b) = (a.expect_link(), b.expect_link());
        let (slot_a, slot_b) = (a.expect_slot(1), b.expect_slot(2));
        Shared { a, b, memory_a, memory_b, slot_a, slot_b, streams }
    }

    /// Another connection on the same link.
    pub fn add(&mut self) -> (Given, Given) {
        let streams = tcp_pair("127.0.0.1");
        self.a.offer(1, &streams.0);
        self.b.offer(2, &streams.1);
        (self.a.expect_slot(1), self.b.expect_slot(2))
    }
}
