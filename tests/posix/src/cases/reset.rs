//! Resets and broken pipes: the right error, once, and the right number of signals.

use libc::{MSG_NOSIGNAL, SHUT_RDWR, SHUT_WR, SIGPIPE};

use crate::case::{Case, case};
use crate::end::Send;
use crate::link;
use crate::peer::Peer;
use crate::sys::cpu::eventually;
use crate::sys::epoll::{ERR, ET, Epoll, HUP, OUT, RDHUP};
use crate::sys::errno::{EAGAIN, ECONNRESET, ENOTCONN, EPIPE};
use crate::sys::net::Family::{V4, V6};
use crate::sys::threads::blocked;
use crate::sys::{bare, fds, files, io, net, poll, signal};
use crate::ways::receiving;

pub const CASES: &[Case] = &[
    case("reset.peer_closed_with_unread_data_v4", || closed_with_unread(V4)),
    case("reset.peer_closed_with_unread_data_v6", || closed_with_unread(V6)),
    case("reset.by_linger_zero", by_linger),
    case("reset.by_linger_zero_set_before_the_first_byte", lingers_from_the_start),
    case("reset.by_linger_zero_with_bytes_unread", || lingers_with_unread(LITTLE)),
    case("reset.by_linger_zero_with_many_bytes_unread", || lingers_with_unread(MUCH)).bulk(),
    case("reset.by_linger_zero_right_after_the_first_bytes", lingers_at_once)
        .may("a connection that is closed at once need not be upgraded"),
    case("reset.linger_is_read_back", linger_is_read_back),
    case("reset.data_before_it_is_read_first", data_first),
    case("reset.wakes_a_blocked_reader", wakes_reader),
    case("reset.wakes_a_blocked_writer", wakes_writer).bulk(),
    case("reset.every_receive_reports_it_once", reported_once),
    case("reset.past_the_library_is_reported_once", past_the_library),
    case("reset.so_error_reads_and_clears", so_error),
    case("reset.write_after_it", write_after),
    case("reset.one_sigpipe_for_each_write", one_sigpipe),
    case("reset.no_signal_when_asked", no_signal),
    case("reset.sigpipe_after_own_half_close", own_half_close),
    case("reset.first_write_after_the_peers_close_goes_out", first_write_goes_out),
    case("reset.nonblocking", nonblocking),
    case("reset.shutdown_afterwards_wakes", shutdown_wakes),
];

/// shutdown(2) fails, since the connection has ended, and wakes those who wait for an edge all the same.
fn shutdown_wakes() {
    let (end, mut other) = link::own_pair(V4);
    let set = Epoll::new();
    set.add(end.fd(), OUT | RDHUP | ET);
    assert_eq!(set.mask_of(end.fd(), 0), OUT);
    net::shutdown(end.fd(), SHUT_RDWR).expect("shutdown");
    assert_eq!(set.mask_of(end.fd(), 3000) & HUP, HUP);
    other.send(100);
    assert_eq!(set.mask_of(end.fd(), 3000) & (ERR | HUP), ERR | HUP);
    assert_eq!(set.wait(5), []);
    assert_eq!(net::shutdown(end.fd(), SHUT_WR), Err(ENOTCONN));
    assert_eq!(set.mask_of(end.fd(), 3000) & (ERR | HUP), ERR | HUP);
    assert_eq!(set.wait(5), []);
}

fn closed_with_unread(family: net::Family) {
    let (mut end, mut peer) = link::client(family);
    end.send(100);
    peer.call("await", &[100]);
    peer.close();
    poll::events_of(end.fd(), libc::POLLIN, 5000);
    assert_eq!(end.rx.ending(), Err(ECONNRESET));
    end.rx.expect_eof();
    // The other way round: this side closes with unread data.
    let (end, mut peer) = link::client(family);
    peer.send(100);
    end.rx.await_bytes(100);
    end.close();
    assert_eq!(peer.call("ending", &[]), libc::ECONNRESET as u64);
}

fn by_linger() {
    let (end, mut peer) = link::client(V4);
    net::set_linger(end.fd(), 0);
    end.close();
    assert_eq!(peer.call("ending", &[]), libc::ECONNRESET as u64);
    assert_eq!(peer.call("ending", &[]), 0, "reported once, then the stream is over");
}

const LITTLE: &[usize] = &[1, 100, 7000];
/// No more than a receiver takes from a sender that has just begun: the kernel would discard the rest.
const MUCH: &[usize] = &[20_000, 10_000, 15_000];

/// A server that is configured to close by reset (as RabbitMQ) has its connections upgraded all the same.
fn lingers_from_the_start() {
    let (mut end, mut peer) = link::cold_client(V4, crate::peer::Preload::Kept);
    net::set_linger(end.fd(), 0);
    link::warm_up(&mut end, &mut peer);
    for _ in 0..50 {
        peer.start("echo", &[1, 500]);
        end.send(500);
        end.recv(500);
        peer.finish();
    }
    end.close();
    assert_eq!(peer.call("ending", &[]), libc::ECONNRESET as u64);
    assert_eq!(peer.call("ending", &[]), 0);
}

/// Bytes that were written before the reset and not read come before it.
fn lingers_with_unread(pieces: &[usize]) {
    for unread_here in [false, true] {
        let (mut end, mut peer) = link::client(V4);
        net::set_linger(end.fd(), 0);
        pieces.iter().for_each(|n| end.send(*n));
        if unread_here {
            peer.send(50);
            end.rx.await_bytes(50);
        }
        end.close();
        pieces.iter().for_each(|n| peer.recv(*n));
        assert_eq!(peer.call("ending", &[]), libc::ECONNRESET as u64);
        assert_eq!(peer.call("ending", &[]), 0);
    }
}

/// Closed during the upgrade: the reset comes, even if not from this call.
fn lingers_at_once() {
    for seconds in [0, 5] {
        for _ in 0..20 {
            let (mut end, mut peer) = link::cold_client(V4, crate::peer::Preload::Kept);
            net::set_linger(end.fd(), seconds);
            end.send(100);
            peer.recv(100);
            end.close();
            let expected = if seconds == 0 { libc::ECONNRESET as u64 } else { 0 };
            assert_eq!(peer.call("ending", &[]), expected);
        }
    }
}

/// The program reads back its own setting, whatever happens to the connection.
fn linger_is_read_back() {
    let (mut client, mut server) = link::cold_pair_ends(V4, 0);
    net::set_linger(client.fd(), 7);
    assert_eq!(net::linger(client.fd()), (1, 7));
    link::warm_up_pair(&mut client, &mut server);
    assert_eq!(net::linger(client.fd()), (1, 7));
    server.send(100);
    client.rx.await_bytes(100);
    let other = fds::dup(client.fd()).expect("dup") as crate::sys::Fd;
    client.close();
    assert_eq!(net::linger(other), (1, 7));
    client.moved_to(other);
    client.recv(100);
    net::shutdown(other, SHUT_WR).expect("shutdown");
    server.rx.expect_eof();
    assert_eq!(net::linger(other), (1, 7));
    assert_eq!(net::linger(server.fd()), (0, 0));
}

/// Bytes that arrived before the reset can be read; the error comes after them.
fn data_first() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(3000);
    end.rx.await_bytes(3000);
    peer.reset();
    eventually("the reset arrives", || poll::events_of(end.fd(), 0, 100) & libc::POLLERR != 0);
    end.recv(1000);
    end.recv(2000);
    assert_eq!(end.rx.ending(), Err(ECONNRESET));
    end.rx.expect_eof();
}

fn wakes_reader() {
    let (end, mut peer) = link::client(V4);
    let fd = end.fd();
    let reader = blocked(move || io::read(fd, &mut [0; 10]));
    peer.reset();
    assert_eq!(reader.join(), Err(ECONNRESET));
}

fn wakes_writer() {
    let (mut end, mut peer) = link::client(V4);
    end.tx.fill();
    let fd = end.fd();
    let writer = blocked(move || io::send(fd, &[0; 100_000], MSG_NOSIGNAL));
    peer.close();
    assert_eq!(writer.join(), Err(ECONNRESET));
}

/// A connection that the peer has reset; this side knows.
fn broken() -> (crate::end::End, Peer) {
    let (end, mut peer) = link::client(V4);
    peer.reset();
    eventually("the reset arrives", || poll::events_of(end.fd(), 0, 100) & libc::POLLERR != 0);
    (end, peer)
}

fn reported_once() {
    let plain = &receiving::ALL[..receiving::PLAIN];
    for (name, call) in plain {
        let (mut end, _peer) = broken();
        assert_eq!(end.rx.try_recv(10, *call), Err(ECONNRESET), "{name}");
        assert_eq!(end.rx.try_recv(10, *call), Ok(0), "{name}");
        end.close();
    }
}

/// Neither end's library has a hand in it, and neither end has died. Bytes for the peer are unread.
fn past_the_library() {
    let (mut end, mut other) = link::own_pair(V4);
    end.send(100);
    other.send(50);
    bare::reset(other.fd());
    end.recv(50);
    assert_eq!(end.rx.ending(), Err(ECONNRESET));
    end.rx.expect_eof();
}

fn so_error() {
    let (mut end, _peer) = broken();
    assert_eq!(net::take_error(end.fd()), libc::ECONNRESET);
    assert_eq!(net::take_error(end.fd()), 0);
    end.rx.expect_eof();
    assert_eq!(io::send(end.fd(), b"x", MSG_NOSIGNAL), Err(EPIPE));
}

/// The first write gets the pending error, the later ones EPIPE.
fn write_after() {
    signal::count_signal(SIGPIPE, 0);
    let (end, _peer) = broken();
    assert_eq!(io::write(end.fd(), b"x"), Err(ECONNRESET));
    assert_eq!(signal::count(SIGPIPE), 0, "the error itself raises no signal");
    assert_eq!(io::write(end.fd(), b"x"), Err(EPIPE));
    assert_eq!(signal::count(SIGPIPE), 1);
}

const WRITERS: [(&str, Send); 8] = [
    ("write", io::write),
    ("writev", io::writev),
    ("send", |fd, buf| io::send(fd, buf, 0)),
    ("sendto", |fd, buf| io::sendto(fd, buf, 0)),
    ("sendmsg", |fd, buf| io::sendmsg(fd, buf, 0)),
    ("pwritev2", |fd, buf| io::pwritev2(fd, buf, 0)),
    ("__write", io::under_write),
    ("sendfile", |fd, buf| io::sendfile(fd, files::holding(buf), None, buf.len())),
];

/// The peer is gone; each call that writes fails with EPIPE and raises exactly one signal.
fn one_sigpipe() {
    signal::count_signal(SIGPIPE, 0);
    let (mut end, mut peer) = link::client(V4);
    peer.close();
    end.rx.expect_eof();
    let first = io::write(end.fd(), b"x");
    assert_eq!(first, Ok(1), "the first write is answered by a reset");
    eventually("the reset arrives", || poll::events_of(end.fd(), 0, 100) & libc::POLLERR != 0);
    for (i, (name, call)) in WRITERS.iter().enumerate() {
        assert_eq!(end.tx.try_send(10, *call), Err(EPIPE), "{name}");
        assert_eq!(signal::count(SIGPIPE), i + 1, "{name}: one signal a call");
    }
}

fn no_signal() {
    signal::count_signal(SIGPIPE, 0);
    let (end, _peer) = broken();
    assert_eq!(net::take_error(end.fd()), libc::ECONNRESET);
    assert_eq!(io::send(end.fd(), b"x", MSG_NOSIGNAL), Err(EPIPE));
    assert_eq!(io::sendmsg(end.fd(), b"x", MSG_NOSIGNAL), Err(EPIPE));
    assert_eq!(io::sendto(end.fd(), b"x", MSG_NOSIGNAL), Err(EPIPE));
    assert_eq!(io::sendmmsg(end.fd(), b"xyzxyzxyz", MSG_NOSIGNAL), Err(EPIPE));
    assert_eq!(signal::count(SIGPIPE), 0);
}

fn own_half_close() {
    signal::count_signal(SIGPIPE, 0);
    let (mut end, mut peer) = link::client(V4);
    end.send(500);
    net::shutdown(end.fd(), SHUT_WR).expect("shutdown");
    assert_eq!(io::write(end.fd(), b"x"), Err(EPIPE));
    assert_eq!(signal::count(SIGPIPE), 1);
    assert_eq!(io::send(end.fd(), b"x", MSG_NOSIGNAL), Err(EPIPE));
    assert_eq!(signal::count(SIGPIPE), 1);
    assert_eq!(peer.drain(), 500);
    peer.send(100);
    end.recv(100);
}

/// The peer's full close looks like a half close until something is written.
fn first_write_goes_out() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(200);
    peer.close();
    end.recv(200);
    end.rx.expect_eof();
    assert_eq!(poll::events_of(end.fd(), libc::POLLOUT, 0), libc::POLLOUT);
    assert_eq!(io::send(end.fd(), b"hello?", MSG_NOSIGNAL), Ok(6));
    eventually("the reset arrives", || poll::events_of(end.fd(), 0, 100) & libc::POLLERR != 0);
    assert_eq!(net::take_error(end.fd()), libc::EPIPE);
    assert_eq!(io::send(end.fd(), b"hello?", MSG_NOSIGNAL), Err(EPIPE));
    end.rx.expect_eof();
}

fn nonblocking() {
    let (mut end, mut peer) = link::client(V4);
    fds::set_nonblocking(end.fd(), true);
    assert_eq!(end.rx.ending(), Err(EAGAIN));
    peer.reset();
    eventually("the reset arrives", || end.rx.ending() != Err(EAGAIN));
    end.rx.expect_eof();
}
