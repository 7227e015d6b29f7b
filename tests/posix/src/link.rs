//! Making connections, and warming them up.

use libc::c_int;

use crate::carried::Awaited;
use crate::end::{End, Side};
use crate::peer::{Peer, Preload};
use crate::sys::errno::EINTR;
use crate::sys::net::{Addr, Family};
use crate::sys::{Fd, fds, net};

/// Round trips before a case's own part, and the bytes of each: enough operations for both sides to be upgraded at the first
/// byte, and for a flip or two.
pub const WARM_ROUNDS: usize = 50;
pub const WARM_BYTES: usize = 64;
/// A socket that listens on a port of the kernel's choice.
pub struct Listener {
    pub fd: Fd,
    pub family: Family,
}

impl Listener {
    pub fn new(family: Family) -> Listener {
        Listener::with(family, 0, 128)
    }

    /// `kind` is SOCK_NONBLOCK or 0.
    pub fn with(family: Family, kind: c_int, backlog: c_int) -> Listener {
        let fd = net::server_socket(family, libc::SOCK_CLOEXEC | kind);
        net::bind(fd, &Addr::server(family, 0)).expect("bind");
        net::listen(fd, backlog).expect("listen");
        Listener { fd, family }
    }

    pub fn addr(&self) -> Addr {
        Addr::server(self.family, self.port())
    }

    pub fn port(&self) -> u16 {
        net::getsockname(self.fd).port()
    }

    pub fn accept(&self) -> Fd {
        loop {
            match net::accept4(self.fd, libc::SOCK_CLOEXEC) {
                Err(EINTR) => {}
                fd => return fd.expect("accept4") as Fd,
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // If the case has closed every descriptor itself, nothing is left to do.
        let _ = fds::close(self.fd);
    }
}

/// A new blocking socket, connected.
pub fn connect(addr: &Addr, family: Family) -> Fd {
    let fd = net::socket(family, libc::SOCK_CLOEXEC);
    net::connect(fd, addr).expect("connect");
    fd
}

/// Two connected sockets of this process, as (client, server), not warmed up.
pub fn cold_pair(family: Family) -> (Fd, Fd) {
    let listener = Listener::new(family);
    let client = connect(&listener.addr(), family);
    (client, listener.accept())
}

/// As [`cold_pair`], as ends of connection `number`.
pub fn cold_pair_ends(family: Family, number: u64) -> (End, End) {
    let (client, server) = cold_pair(family);
    net::set_nodelay(client);
    net::set_nodelay(server);
    (End::numbered(client, Side::Client, number), End::numbered(server, Side::Server, number))
}

/// Both ends in this process, warmed up by this one thread.
pub fn own_pair(family: Family) -> (End, End) {
    numbered_pair(family, 0)
}

pub fn numbered_pair(family: Family, number: u64) -> (End, End) {
    let (mut client, mut server) = cold_pair_ends(family, number);
    warm_up_pair(&mut client, &mut server);
    (client, server)
}

pub fn warm_up_pair(a: &mut End, b: &mut End) {
    net::set_nodelay(a.fd());
    net::set_nodelay(b.fd());
    let awaited = Awaited::of(&[a.fd(), b.fd()]);
    for _ in 0..WARM_ROUNDS {
        a.send(WARM_BYTES);
        b.recv(WARM_BYTES);
        b.send(WARM_BYTES);
        a.recv(WARM_BYTES);
        awaited.rest();
    }
}

/// As [`own_pair`]'s warm-up, between two processes that are no puppets; the other one calls [`warm_answering`].
pub fn warm_asking(end: &mut End) {
    net::set_nodelay(end.fd());
    ask_and_rest(end);
}

fn ask_and_rest(end: &mut End) {
    let awaited = Awaited::of(&[end.fd()]);
    for _ in 0..WARM_ROUNDS {
        end.send(WARM_BYTES);
        end.recv(WARM_BYTES);
        awaited.rest();
    }
}

pub fn warm_answering(end: &mut End) {
    net::set_nodelay(end.fd());
    let awaited = Awaited::of(&[end.fd()]);
    for _ in 0..WARM_ROUNDS {
        end.recv(WARM_BYTES);
        end.send(WARM_BYTES);
        awaited.rest();
    }
}

/// Without Nagle's delays: cases expect sent bytes to arrive soon.
pub fn warm_up(end: &mut End, peer: &mut Peer) {
    net::set_nodelay(end.fd());
    peer.start("warm", &[]);
    ask_and_rest(end);
    peer.finish();
}

/// This process connects to a peer process that accepts; not warmed up.
pub fn cold_client(family: Family, preload: Preload) -> (End, Peer) {
    let mut peer = Peer::spawn(preload);
    let port = peer.call("listen", &[family as u64]);
    let fd = connect(&Addr::server(family, port as u16), family);
    peer.call("accept", &[]);
    (End::new(fd, Side::Client), peer)
}

/// A peer process connects to this one; not warmed up.
pub fn cold_server(family: Family, preload: Preload) -> (End, Peer) {
    let mut peer = Peer::spawn(preload);
    let listener = Listener::new(family);
    peer.start("connect", &[family as u64, listener.port() as u64]);
    let fd = listener.accept();
    peer.finish();
    (End::new(fd, Side::Server), peer)
}

/// The usual start of a case: this process is the client of a peer process, warmed up.
pub fn client(family: Family) -> (End, Peer) {
    let (mut end, mut peer) = cold_client(family, Preload::Kept);
    warm_up(&mut end, &mut peer);
    (end, peer)
}

/// This process is the server of a peer process, warmed up.
pub fn server(family: Family) -> (End, Peer) {
    let (mut end, mut peer) = cold_server(family, Preload::Kept);
    warm_up(&mut end, &mut peer);
    (end, peer)
}
