//! What recvmsg(2) reports besides bytes: how many are left (TCP_INQ), and when they came (SO_TIMESTAMP and its kin).

use libc::{IPPROTO_TCP, MSG_CTRUNC, MSG_PEEK, SOL_SOCKET, c_int};

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::peer::Peer;
use crate::sys::net::Family::{V4, V6};
use crate::sys::{cpu, fds, io, net};

pub const CASES: &[Case] = &[
    case("ancillary.tcp_inq_tells_what_is_left", tells_what_is_left),
    case("ancillary.tcp_inq_with_little_room", little_room),
    case("ancillary.tcp_inq_of_a_listener", inherited),
    case("ancillary.timestamps_come_with_the_bytes", timestamps),
];

fn tell_unread(end: &End, on: c_int) {
    net::set_option(end.fd(), IPPROTO_TCP, libc::TCP_INQ, &on).expect("TCP_INQ");
}

/// One recvmsg of at most `n` bytes. Returns how many came, and how many it reports as left.
fn receive(end: &mut End, n: usize, flags: c_int) -> (usize, c_int) {
    let got = io::recvmsg_control(end.fd(), n, 64, flags);
    let bytes = got.outcome.expect("recvmsg");
    if flags & MSG_PEEK == 0 {
        end.rx.arrived(&got.bytes[..bytes]);
    }
    let word = |at: usize| i32::from_ne_bytes(got.control[at..at + 4].try_into().expect("an int"));
    assert_eq!((got.control.len(), got.flags & MSG_CTRUNC), (24, 0));
    assert_eq!((word(0), word(4), word(8), word(12)), (20, 0, IPPROTO_TCP, libc::TCP_CM_INQ));
    (bytes, word(16))
}

/// Reads all bytes in pieces. Each read must report the rest.
fn check_rest(end: &mut End, peer: &mut Peer, n: usize) {
    peer.send(n);
    end.rx.await_bytes(n);
    assert_eq!(receive(end, 1, MSG_PEEK), (1, n as c_int));
    let mut left = n;
    while left > 0 {
        let (bytes, told) = receive(end, 40, 0);
        left -= bytes;
        assert_eq!(told, left as c_int);
    }
}

fn tells_what_is_left() {
    let (mut end, mut peer) = link::client(V4);
    tell_unread(&end, 1);
    for n in [100, 1, 4000, 41] {
        check_rest(&mut end, &mut peer, n);
    }
    peer.shutdown(libc::SHUT_WR);
    cpu::eventually("the end arrives", || net::tcp_info(end.fd()).tcpi_state == 8);
    assert_eq!(receive(&mut end, 10, 0), (0, 1), "behind the end there is one more read to be made");
    tell_unread(&end, 0);
    assert!(io::recvmsg_control(end.fd(), 10, 64, 0).control.is_empty());
}

/// The control message is cut to the room there is.
fn little_room() {
    let (mut end, mut peer) = link::server(V6);
    tell_unread(&end, 1);
    for (room, len, cut) in
        [(0, 0, true), (15, 0, true), (16, 16, true), (19, 19, true), (20, 20, false), (24, 24, false)]
    {
        peer.send(2);
        end.rx.await_bytes(2);
        let got = io::recvmsg_control(end.fd(), 1, room, 0);
        end.rx.arrived(&got.bytes[..got.outcome.expect("recvmsg")]);
        assert_eq!((got.control.len(), got.flags & MSG_CTRUNC != 0), (len, cut), "room for {room}");
        if len >= 20 {
            assert_eq!(got.control[16..20], 1i32.to_ne_bytes());
        }
        end.recv(1);
    }
}

/// A connection whose listener has set the option. Both ends are in this process.
fn of_listener(level: c_int, name: c_int) -> (End, End) {
    let listener = Listener::new(V4);
    net::set_option(listener.fd, level, name, &1).expect("an option of the listener");
    let mut client = End::new(link::connect(&listener.addr(), V4), Side::Client);
    let mut server = End::new(listener.accept(), Side::Server);
    link::warm_up_pair(&mut client, &mut server);
    (client, server)
}

fn inherited() {
    let (mut client, mut server) = of_listener(IPPROTO_TCP, libc::TCP_INQ);
    client.send(50);
    server.rx.await_bytes(50);
    let mut left = 50;
    while left > 0 {
        let (bytes, told) = receive(&mut server, 20, 0);
        left -= bytes as c_int;
        assert_eq!(told, left);
    }
    server.send(10);
    client.recv(10);
}

/// The type of the control message that comes with the next bytes; None: there is none.
fn ancillary(end: &mut End) -> Option<(c_int, c_int)> {
    let got = io::recvmsg_control(end.fd(), 10, 128, 0);
    end.rx.arrived(&got.bytes[..got.outcome.expect("recvmsg")]);
    let word = |at: usize| i32::from_ne_bytes(got.control[at..at + 4].try_into().expect("an int"));
    (got.control.len() >= 32).then(|| (word(8), word(12)))
}

/// The kernel begins to record times only a moment after the machine's first socket has asked for them.
fn timestamps() {
    // SCM_TIMESTAMP is the answer to SO_TIMESTAMP, and so on: level and type equal those of the option.
    for name in [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS] {
        let (mut end, mut peer) = link::client(V4);
        net::set_option(end.fd(), SOL_SOCKET, name, &1).expect("a timestamp option");
        cpu::eventually("times come with the bytes", || {
            peer.send(10);
            end.rx.await_bytes(10);
            ancillary(&mut end) == Some((SOL_SOCKET, name))
        });
        for _ in 0..3 {
            peer.send(10);
            end.rx.await_bytes(10);
            assert_eq!(ancillary(&mut end), Some((SOL_SOCKET, name)));
        }
        end.send(100);
        peer.recv(100);
        let _ = fds::close(end.fd());
    }
}
