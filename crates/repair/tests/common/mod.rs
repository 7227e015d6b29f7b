//! Two network namespaces joined by a pair of veth devices, without a route to anywhere else.
#![allow(dead_code)] // each test program uses a part

pub mod failing;
pub mod pattern;
pub mod raw;
pub mod segment;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use sidestep_testkit::Namespace;
use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// The end that is taken. The veth device of both namespaces has this name.
pub const DEVICE: &str = "wire0";
/// More than anything takes here.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
    /// IPv4 by an IPv6 socket.
    Mapped,
}

/// Which end of the handshake is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// From an ephemeral port.
    Dials,
    /// By a listener that ends at once.
    Accepts,
}

/// What a connection is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub family: Family,
    pub role: Role,
    pub mtu: u32,
    pub timestamps: bool,
    pub scaling: bool,
    pub sack: bool,
}

pub const USUAL: Shape =
    Shape { family: Family::V4, role: Role::Accepts, mtu: 1500, timestamps: true, scaling: true, sack: true };

/// The namespace of the connections that are taken, and the namespace of their peers.
pub struct Wire {
    pub near: Namespace,
    pub far: Namespace,
}

impl Wire {
    pub fn new(mtu: u32) -> Wire {
        let wire = Wire { near: Namespace::fresh(), far: Namespace::fresh() };
        wire.near.ip(&format!("link add {DEVICE} type veth peer name {DEVICE} netns {}", wire.far.name()));
        for (namespace, number) in [(&wire.near, 1), (&wire.far, 2)] {
            namespace.ip(&format!("addr add 192.0.2.{number}/24 dev {DEVICE}"));
            namespace.ip(&format!("-6 addr add fd00:5e::{number}/64 dev {DEVICE} nodad"));
            namespace.ip(&format!("link set {DEVICE} mtu {mtu} up"));
        }
        wire
    }

    /// A wire with the options of later connections set in both of its namespaces.
    pub fn shaped(shape: &Shape) -> Wire {
        let wire = Wire::new(shape.mtu);
        wire.sysctl("tcp_timestamps", shape.timestamps);
        wire.sysctl("tcp_window_scaling", shape.scaling);
        wire.sysctl("tcp_sack", shape.sack);
        wire
    }

    /// In both namespaces, and nowhere else.
    pub fn sysctl(&self, name: &str, value: bool) {
        for namespace in [&self.near, &self.far] {
            let path = format!("/proc/sys/net/ipv4/{name}");
            namespace.run(|| std::fs::write(&path, if value { "1" } else { "0" }).expect("a sysctl of the namespace"));
        }
    }

    /// A connection: the end to take, and its peer.
    pub fn connect(&self, shape: &Shape) -> (TcpStream, TcpStream) {
        let (acceptor, dialler, address) = match shape.role {
            Role::Accepts => (&self.near, &self.far, near(shape.family)),
            Role::Dials => (&self.far, &self.near, far(shape.family)),
        };
        let listener = acceptor.run(|| listen(shape.family));
        let port = listener.local_addr().expect("its address").port();
        // The peer of a mapped socket is an IPv4 socket; a socket that dials a mapped address is an IPv6 socket.
        let dialled = dialler.run(|| TcpStream::connect(SocketAddr::new(address, port)).expect("a connection"));
        let (accepted, _) = listener.accept().expect("a connection");
        // No test waits forever.
        for stream in [&accepted, &dialled] {
            stream.set_read_timeout(Some(PATIENCE)).expect("SO_RCVTIMEO");
            stream.set_write_timeout(Some(PATIENCE)).expect("SO_SNDTIMEO");
        }
        match shape.role {
            Role::Accepts => (accepted, dialled),
            Role::Dials => (dialled, accepted),
        }
    }

    /// Drops all TCP packets that come to the near namespace, before the kernel's TCP sees them. Returns when none is on its way that
    /// had passed before, as a take demands of its caller.
    pub fn close(&self) {
        let rules = format!(
            "table inet gate {{ chain in {{ type filter hook prerouting priority -300; \
             iifname \"{DEVICE}\" meta l4proto tcp drop; }}; }}"
        );
        self.nft(&rules);
        // SAFETY: no pointers.
        let waited = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
        assert_eq!(waited, 0, "an RCU grace period, within which each packet is processed");
    }

    /// Lets them pass again.
    pub fn open(&self) {
        self.nft("delete table inet gate");
    }

    /// Drops what the near namespace sends, before the far kernel's TCP sees it.
    pub fn close_far(&self) {
        let rules = format!(
            "table inet gate {{ chain in {{ type filter hook prerouting priority -300; \
             iifname \"{DEVICE}\" meta l4proto tcp drop; }}; }}"
        );
        in_namespace(&self.far, "nft", &[&rules]);
    }

    /// Lets it pass again.
    pub fn open_far(&self) {
        in_namespace(&self.far, "nft", &["delete table inet gate"]);
    }

    /// Counts the TCP packets that the near namespace sends from this port.
    pub fn count(&self, port: u16) {
        let chain = "type filter hook output priority 0;";
        self.nft(&format!("table inet count{port} {{ chain out {{ {chain} tcp sport {port} counter; }}; }}"));
    }

    /// How many there were.
    pub fn counted(&self, port: u16) -> u64 {
        let text = self.nft(&format!("list table inet count{port}"));
        let number = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
        number.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no count in {text}"))
    }

    pub fn nft(&self, command: &str) -> String {
        in_namespace(&self.near, "nft", &[command])
    }
}

/// Runs a program, and returns what it prints.
pub fn in_namespace(namespace: &Namespace, program: &str, words: &[&str]) -> String {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name(), program]).args(words);
    let done = command.output().expect("ip-netns(8)");
    assert!(done.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

pub fn near(family: Family) -> std::net::IpAddr {
    match family {
        Family::V6 => Ipv6Addr::new(0xfd00, 0x5e, 0, 0, 0, 0, 0, 1).into(),
        _ => Ipv4Addr::new(192, 0, 2, 1).into(),
    }
}

pub fn far(family: Family) -> std::net::IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(192, 0, 2, 2).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0x5e, 0, 0, 0, 0, 0, 2).into(),
        Family::Mapped => Ipv4Addr::new(192, 0, 2, 2).to_ipv6_mapped().into(),
    }
}

fn listen(family: Family) -> TcpListener {
    let any: std::net::IpAddr =
        if family == Family::V4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    TcpListener::bind((any, 0)).expect("a listener")
}

/// Waits until the condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1)); // between two looks
    }
}

/// Waits until the value has not changed for a while.
pub fn settled(mut value: impl FnMut() -> u64) -> u64 {
    let (mut last, mut since) = (value(), Instant::now());
    until("a value that does not change", || {
        let now = value();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(60)
    });
    last
}

/// Writes without waiting. Returns how many bytes the kernel took.
pub fn write_some(mut stream: &TcpStream, bytes: &[u8]) -> usize {
    match stream.write(bytes) {
        Ok(done) => done,
        Err(error) if error.kind() == WouldBlock => 0,
        Err(error) => panic!("write: {error}"),
    }
}

/// Reads without waiting. None: nothing there; empty: the end.
pub fn read_some(mut stream: &TcpStream, into: &mut [u8]) -> Option<usize> {
    match stream.read(into) {
        Ok(done) => Some(done),
        Err(error) if error.kind() == WouldBlock => None,
        Err(error) => panic!("read: {error}"),
    }
}

/// Waits until one of the events has happened, or the time is over.
pub fn wait(stream: &TcpStream, events: PollFlags, most: Duration) {
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    poll(&mut [PollFd::new(stream, events)], Some(&most)).expect("poll");
}

/// Sends `to_far` from near and `to_near` from far; both ends read until the end and compare every byte.
pub fn finish(near: TcpStream, far: TcpStream, to_far: &mut Expected, to_near: &mut Expected, rest: usize) {
    near.set_nonblocking(false).expect("O_NONBLOCK");
    far.set_nonblocking(false).expect("O_NONBLOCK");
    for stream in [&near, &far] {
        stream.set_read_timeout(Some(PATIENCE)).expect("SO_RCVTIMEO");
        stream.set_write_timeout(Some(PATIENCE)).expect("SO_SNDTIMEO");
    }
    std::thread::scope(|scope| {
        let (near, far) = (&near, &far);
        let (sent_far, sent_near) = (to_far.written + rest as u64, to_near.written + rest as u64);
        let mut more_far = to_far.source();
        let mut more_near = to_near.source();
        scope.spawn(move || send_all(near, &mut more_far, rest));
        scope.spawn(move || send_all(far, &mut more_near, rest));
        scope.spawn(move || to_far.read_to_end(far, sent_far));
        scope.spawn(move || to_near.read_to_end(near, sent_near));
    });
}

fn send_all(mut stream: &TcpStream, source: &mut pattern::Source, len: usize) {
    stream.write_all(&source.next(len)).expect("write");
    stream.shutdown(Shutdown::Write).expect("shutdown");
}

/// One direction: what has been written, and what has been read and compared.
pub struct Expected {
    seed: u64,
    pub written: u64,
    pub read: u64,
}

impl Expected {
    pub fn new(seed: u64) -> Expected {
        Expected { seed, written: 0, read: 0 }
    }

    /// The bytes at these positions.
    pub fn bytes(&self, from: u64, len: usize) -> Vec<u8> {
        pattern::Source::at(self.seed, from).next(len)
    }

    fn source(&self) -> pattern::Source {
        pattern::Source::at(self.seed, self.written)
    }

    /// Writes up to `len` bytes without waiting.
    pub fn write(&mut self, stream: &TcpStream, len: usize) -> usize {
        let done = write_some(stream, &self.source().next(len));
        self.written += done as u64;
        done
    }

    /// Writes until the kernel takes no more for a while.
    pub fn write_until_full(&mut self, stream: &TcpStream) {
        settled(|| {
            self.write(stream, 1 << 16);
            self.written
        });
    }

    /// Reads what is there, and compares it. Returns how much it was; None: nothing.
    pub fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> Option<usize> {
        let len = read_some(stream, buffer)?;
        self.compare(&buffer[..len]);
        Some(len)
    }

    fn compare(&mut self, found: &[u8]) {
        let expected = self.bytes(self.read, found.len());
        if found != expected {
            let at = found.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(0);
            panic!("wrong byte at position {}", self.read + at as u64);
        }
        self.read += found.len() as u64;
    }

    pub fn read_to_end(&mut self, mut stream: &TcpStream, end: u64) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match stream.read(&mut buffer).expect("read") {
                0 => break,
                len => self.compare(&buffer[..len]),
            }
        }
        assert_eq!(self.read, end, "the stream ends where its writer ended it");
    }
}

/// The error that the socket reports: none.
pub fn no_error(stream: &TcpStream) {
    assert_eq!(sockopt::socket_error(stream).expect("SO_ERROR"), Ok(()));
}
