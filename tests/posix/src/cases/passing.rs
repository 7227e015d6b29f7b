//! Passing a live connection to another process over a unix socket.

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::peer::{Peer, Preload};
use crate::sys::epoll::{Epoll, IN, OUT};
use crate::sys::net::Family::V4;
use crate::sys::{fds, passing};

pub const CASES: &[Case] = &[
    case("passing.to_a_preloaded_process", || passed(Preload::Kept, false, 0)).reason("passed"),
    case("passing.to_an_unpreloaded_process", || passed(Preload::Stripped, false, 0)),
    case("passing.by_sendmmsg", || passed(Preload::Stripped, true, 0)),
    case("passing.with_unread_data_to_preloaded", || passed(Preload::Kept, false, 5000)),
    case("passing.with_unread_data_to_unpreloaded", || passed(Preload::Stripped, false, 5000)),
    case("passing.with_much_unread_data", much_unread).bulk(),
    case("passing.while_the_other_side_streams", while_streaming).bulk(),
    case("passing.and_keeping_it_too", kept_too),
    case("passing.an_epoll_set", set_passed),
    case("passing.to_oneself", to_oneself),
    case("passing.closed_before_it_is_received", closed_in_flight),
    case("passing.to_a_thread_of_the_same_process", to_a_thread),
    case("passing.before_the_first_byte", before_first_byte)
        .may("the receiver did not accept or connect the socket itself"),
];

fn rounds(a: &mut Peer, b: &mut Peer) {
    a.start("echo", &[20, 400]);
    for _ in 0..20 {
        b.send(400);
        b.recv(400);
    }
    a.finish();
}

/// The receiving process continues where this one has stopped.
fn passed(preload: Preload, by_sendmmsg: bool, unread: usize) {
    let (end, mut peer) = link::client(V4);
    let mut receiver = Peer::spawn(preload);
    if unread > 0 {
        peer.send(unread);
        end.rx.await_bytes(unread);
    }
    receiver.hand_over(&end, false, by_sendmmsg);
    end.close();
    if unread > 0 {
        receiver.recv(unread);
    }
    rounds(&mut peer, &mut receiver);
    receiver.close();
    assert_eq!(peer.call("ending", &[]), 0);
}

fn much_unread() {
    let (end, mut peer) = link::client(V4);
    let filled = peer.call("fill", &[]) as usize;
    let mut receiver = Peer::spawn(Preload::Stripped);
    receiver.hand_over(&end, false, false);
    end.close();
    receiver.recv(filled);
    rounds(&mut peer, &mut receiver);
}

/// As in HAProxy's reload under load: the sender of the stream notices nothing.
fn while_streaming() {
    const PIECE: u64 = 200_000;
    let (mut end, mut peer) = link::client(V4);
    peer.start("mixed", &[4 * PIECE, 0, 8000, 1]);
    end.recv(PIECE as usize);
    let mut hands: Vec<Peer> = [Preload::Kept, Preload::Stripped].into_iter().map(Peer::spawn).collect();
    for receiver in &mut hands {
        receiver.hand_over(&end, false, false);
        receiver.recv(PIECE as usize);
        end.rx.skipped(PIECE as usize);
    }
    end.recv(PIECE as usize);
    peer.finish();
}

/// Two holders in two programs; they use the connection in turns.
fn kept_too() {
    let (mut end, mut peer) = link::client(V4);
    let mut receiver = Peer::spawn(Preload::Kept);
    receiver.hand_over(&end, false, false);
    for _ in 0..10 {
        peer.send(300);
        receiver.recv(300);
        end.rx.skipped(300);
        peer.send(200);
        end.recv(200);
        receiver.call("skip", &[200]);
        end.send(100);
        receiver.call("skip_sent", &[100]);
        receiver.send(50);
        end.tx.sent(50);
        peer.recv(150);
    }
    drop(receiver);
    link::warm_up(&mut end, &mut peer);
    end.close();
    assert_eq!(peer.call("ending", &[]), 0);
}

/// Both processes wait in the set; only this one has the connection.
fn set_passed() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.control(libc::EPOLL_CTL_ADD, end.fd(), IN, 77).expect("EPOLL_CTL_ADD");
    assert_eq!(set.wait(0), []);
    peer.send(10);
    assert_eq!(set.wait(5000), [(IN, 77)]);
    end.recv(10);
    let mut receiver = Peer::spawn(Preload::Stripped);
    let there = receiver.hand_over_set(set);
    peer.send(10);
    for _ in 0..2 {
        assert_eq!(receiver.told(there, 5000), Some((IN, 77)), "by level");
        assert_eq!(set.wait(5000), [(IN, 77)]);
        end.recv(5);
    }
    assert_eq!(receiver.told(there, 0), None);
    set.control(libc::EPOLL_CTL_MOD, end.fd(), IN | OUT, 78).expect("EPOLL_CTL_MOD");
    assert_eq!(receiver.told(there, 5000), Some((OUT, 78)));
}

fn via_unix_socket(end: &mut End) {
    let (left, right) = fds::unix_pair();
    passing::send_fd(left, end.fd(), false);
    end.close();
    end.moved_to(passing::receive_fd(right));
    fds::close(left).expect("close");
    fds::close(right).expect("close");
}

/// Sent through a unix socket and received again: the number changes, the stream goes on.
fn to_oneself() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..5 {
        peer.send(777);
        end.rx.await_bytes(777);
        via_unix_socket(&mut end);
        end.recv(777);
        link::warm_up(&mut end, &mut peer);
    }
}

/// In flight no process holds the connection, but it is alive.
fn closed_in_flight() {
    let (mut end, mut peer) = link::client(V4);
    let (left, right) = fds::unix_pair();
    passing::send_fd(left, end.fd(), false);
    end.close();
    peer.send(1234);
    end.moved_to(passing::receive_fd(right));
    end.recv(1234);
    link::warm_up(&mut end, &mut peer);
}

fn to_a_thread() {
    let (mut end, mut peer) = link::client(V4);
    let (left, right) = fds::unix_pair();
    std::thread::scope(|s| {
        let worker = s.spawn(move || passing::receive_fd(right));
        passing::send_fd(left, end.fd(), false);
        end.close();
        end.moved_to(worker.join().expect("the worker"));
    });
    link::warm_up(&mut end, &mut peer);
}

/// As an accepting process passes connections to workers.
fn before_first_byte() {
    let mut peer = Peer::spawn(Preload::Kept);
    let listener = link::Listener::new(V4);
    peer.start("connect", &[0, listener.port().into()]);
    let end = End::new(listener.accept(), crate::end::Side::Server);
    peer.finish();
    let mut worker = Peer::spawn(Preload::Kept);
    worker.hand_over(&end, true, false);
    end.close();
    rounds(&mut peer, &mut worker);
    rounds(&mut worker, &mut peer);
}
