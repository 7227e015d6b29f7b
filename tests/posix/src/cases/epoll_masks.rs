//! The exact masks that poll and epoll report in each state of a connection.

use crate::case::{Case, case};
use crate::link;
use crate::sys::cpu::eventually;
use crate::sys::epoll::{ERR, ET, EXCLUSIVE, Epoll, HUP, IN, ONESHOT, OUT, PRI, RDHUP};
use crate::sys::errno::{ECONNRESET, EINVAL};
use crate::sys::net::Family::{V4, V6};
use crate::sys::{Fd, net, poll};

pub const CASES: &[Case] = &[
    case("masks.peer_half_closed_v4", || peer_half_closed(V4)),
    case("masks.peer_half_closed_v6", || peer_half_closed(V6)),
    case("masks.peer_closed", peer_closed),
    case("masks.both_half_closed", both_half_closed),
    case("masks.own_half_closed", own_half_closed),
    case("masks.own_read_side_shut", read_side_shut),
    case("masks.reset", reset),
    case("masks.reset_wakes_interest_in_nothing", reset_wakes_nothing_asked),
    case("masks.hup_cannot_be_masked", hup_unmasked),
    case("masks.fresh_socket", fresh_socket).never("nobody accepts it"),
    case("masks.all_readable_names", readable_names),
    case("masks.exclusive_wakes_at_least_one", exclusive),
    case("masks.exclusive_is_restricted", exclusive_restricted),
];

const ALL: u32 = IN | OUT | PRI | RDHUP;

/// Waits until both poll and epoll report exactly this.
fn expect(fd: Fd, want: u32, when: &str) {
    let set = Epoll::new();
    set.add(fd, ALL);
    let epoll = || set.mask_of(fd, 0);
    let mut seen = 0;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(3);
    while std::time::Instant::now() < deadline && {
        seen = epoll();
        seen != want
    } {
        std::thread::yield_now();
    }
    assert_eq!(seen, want, "epoll's mask when {when}");
    assert_eq!(poll::events_of(fd, ALL as i16, 0) as u32, want, "poll's mask when {when}");
    crate::sys::fds::close(set.fd).expect("close the set");
}

fn peer_half_closed(family: net::Family) {
    let (mut end, mut peer) = link::client(family);
    expect(end.fd(), OUT, "idle");
    peer.send(10);
    expect(end.fd(), IN | OUT, "data waits");
    peer.shutdown(libc::SHUT_WR);
    expect(end.fd(), IN | OUT | RDHUP, "the peer has half closed with data waiting");
    end.recv(10);
    expect(end.fd(), IN | OUT | RDHUP, "the peer has half closed");
    end.rx.expect_eof();
    end.send(100);
    peer.recv(100);
    expect(end.fd(), IN | OUT | RDHUP, "the other direction goes on");
}

fn peer_closed() {
    let (mut end, mut peer) = link::client(V4);
    peer.close();
    expect(end.fd(), IN | OUT | RDHUP, "the peer has closed");
    end.rx.expect_eof();
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    expect(end.fd(), IN | OUT | RDHUP | HUP, "we have half closed as well");
}

fn both_half_closed() {
    let (end, mut peer) = link::client(V4);
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    peer.shutdown(libc::SHUT_WR);
    expect(end.fd(), IN | OUT | RDHUP | HUP, "both have half closed");
}

fn own_half_closed() {
    let (mut end, mut peer) = link::client(V4);
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    expect(end.fd(), OUT, "we have half closed");
    peer.send(10);
    expect(end.fd(), IN | OUT, "data still comes");
    end.recv(10);
}

fn read_side_shut() {
    let (mut end, mut peer) = link::client(V4);
    net::shutdown(end.fd(), libc::SHUT_RD).expect("shutdown");
    expect(end.fd(), IN | OUT | RDHUP, "our read side is shut");
    end.rx.expect_eof();
    end.send(50);
    peer.recv(50);
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    expect(end.fd(), IN | OUT | RDHUP | HUP, "both sides are shut");
}

fn reset() {
    let (mut end, mut peer) = link::client(V4);
    peer.reset();
    expect(end.fd(), IN | OUT | RDHUP | ERR | HUP, "the peer has reset");
    assert_eq!(end.rx.ending(), Err(ECONNRESET));
    expect(end.fd(), IN | OUT | RDHUP | HUP, "the error was taken");
    end.rx.expect_eof();
}

/// ERR and HUP are reported even if not asked for.
fn reset_wakes_nothing_asked() {
    let (end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), 0);
    peer.after(20).start("reset", &[]);
    assert_eq!(set.mask_of(end.fd(), 5000), ERR | HUP);
    peer.finish();
    assert_eq!(poll::events_of(end.fd(), 0, 1000) as u32, ERR | HUP);
}

fn hup_unmasked() {
    let (end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), ET);
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    peer.after(20).start("shutdown", &[libc::SHUT_WR as u64]);
    assert_eq!(set.mask_of(end.fd(), 5000), HUP);
    peer.finish();
    assert_eq!(poll::events_of(end.fd(), 0, 1000) as u32, HUP);
}

fn fresh_socket() {
    let fd = net::socket(V4, 0);
    expect(fd, OUT | HUP, "not connected");
    let listener = link::Listener::new(V4);
    expect(listener.fd, 0, "nobody has connected");
    link::connect(&listener.addr(), V4);
    expect(listener.fd, IN, "somebody has connected");
}

/// RDNORM and WRNORM are further names of IN and OUT, reported if asked for.
fn readable_names() {
    let (mut end, mut peer) = link::client(V4);
    let asked = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLOUT | libc::POLLWRNORM;
    assert_eq!(poll::events_of(end.fd(), asked, 0), libc::POLLOUT | libc::POLLWRNORM);
    peer.send(1);
    end.rx.await_bytes(1);
    let all = asked & !libc::POLLRDBAND;
    assert_eq!(poll::events_of(end.fd(), asked, 0), all);
    let set = Epoll::new();
    set.add(end.fd(), asked as u32);
    assert_eq!(set.mask_of(end.fd(), 0), all as u32);
    end.recv(1);
    set.modify(end.fd(), libc::EPOLLRDNORM as u32);
    peer.start("send", &[1]);
    assert_eq!(set.mask_of(end.fd(), 2000), libc::EPOLLRDNORM as u32);
    peer.finish();
}

/// Two sets watch one socket with EPOLLEXCLUSIVE: an arrival wakes one of them or both.
fn exclusive() {
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    for _ in 0..20 {
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let set = Epoll::new();
                set.add(fd, IN | EXCLUSIVE);
                (set, std::thread::spawn(move || set.mask_of(fd, 5000)))
            })
            .collect();
        peer.send(10);
        eventually("one waiter woke", || waiters.iter().any(|(_, thread)| thread.is_finished()));
        // A set that was not woken does not know of the arrival; adding the socket again reports it.
        for (set, _) in &waiters {
            set.delete(fd);
            set.add(fd, IN);
        }
        for (set, thread) in waiters {
            assert_eq!(thread.join().expect("a waiter"), IN);
            crate::sys::fds::close(set.fd).expect("close the set");
        }
        end.recv(10);
    }
}

fn exclusive_restricted() {
    let (end, _peer) = link::client(V4);
    let set = Epoll::new();
    let (add, modify) = (libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD);
    assert_eq!(set.control(add, end.fd(), IN | EXCLUSIVE | ONESHOT, 0), Err(EINVAL));
    assert_eq!(set.control(add, end.fd(), IN | EXCLUSIVE | RDHUP, 0), Err(EINVAL));
    assert_eq!(set.control(add, end.fd(), IN | EXCLUSIVE | ET, 0), Ok(0));
    assert_eq!(set.control(modify, end.fd(), IN, 0), Err(EINVAL));
    assert_eq!(set.control(modify, end.fd(), IN | EXCLUSIVE, 0), Err(EINVAL));
}
