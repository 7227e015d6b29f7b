//! Edge-triggered epoll: an event for each change, and none missing.

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::peer::Peer;
use crate::sys::epoll::{ET, Epoll, IN, OUT, RDHUP};
use crate::sys::errno::{EAGAIN, Outcome};
use crate::sys::net::Family::{V4, V6};
use crate::sys::threads::blocked;
use crate::sys::{Fd, fds, io};

pub const CASES: &[Case] = &[
    case("epoll_edge.new_edge_for_each_arrival_v4", || each_arrival(V4)),
    case("epoll_edge.new_edge_for_each_arrival_v6", || each_arrival(V6)),
    case("epoll_edge.reading_a_part_makes_no_edge", part_read),
    case("epoll_edge.modify_arms_again", modify_arms),
    case("epoll_edge.added_with_data_waiting", added_late),
    case("epoll_edge.out_edge_when_space_returns", out_edge).bulk(),
    case("epoll_edge.out_edge_after_a_write_that_found_space", out_edge_after_write),
    case("epoll_edge.out_edge_for_a_thread_that_sleeps_already", out_edge_for_a_sleeper).bulk(),
    case("epoll_edge.out_edge_after_a_splice_that_found_no_space", out_edge_after_splice),
    case("epoll_edge.writable_once", writable_once),
    case("epoll_edge.edge_at_the_end", edge_at_end),
    case("epoll_edge.no_edge_lost_while_streaming", stream).bulk(),
    case("epoll_edge.drain_until_eagain_never_hangs", drain_until_eagain),
    case("epoll_edge.arrivals_are_no_news_to_a_writer", arrivals_to_a_writer).reason("urgent"),
];

fn edge_set(end: &End, mask: u32) -> Epoll {
    fds::set_nonblocking(end.fd(), true);
    let set = Epoll::new();
    set.add(end.fd(), mask | ET);
    set
}

/// Unread bytes do not hide a further arrival.
fn each_arrival(family: crate::sys::net::Family) {
    let (mut end, mut peer) = link::client(family);
    let set = edge_set(&end, IN);
    for round in 1..=10 {
        peer.send(100);
        assert_eq!(set.mask_of(end.fd(), 2000), IN, "arrival {round}");
        end.rx.await_bytes(round * 100);
        assert_eq!(set.wait(10), [], "one edge for arrival {round}");
    }
    end.recv(1000);
}

fn part_read() {
    let (mut end, mut peer) = link::client(V4);
    let set = edge_set(&end, IN);
    peer.send(100);
    assert_eq!(set.mask_of(end.fd(), 2000), IN);
    end.recv(40);
    assert_eq!(set.wait(20), [], "nothing new came");
    peer.send(1);
    assert_eq!(set.mask_of(end.fd(), 2000), IN);
    end.recv(61);
    assert_eq!(set.wait(20), []);
}

fn modify_arms() {
    let (mut end, mut peer) = link::client(V4);
    let set = edge_set(&end, IN);
    peer.send(100);
    end.rx.await_bytes(100);
    for _ in 0..3 {
        assert_eq!(set.mask_of(end.fd(), 100), IN);
        assert_eq!(set.wait(10), []);
        set.modify(end.fd(), IN | ET);
    }
    end.recv(100);
    set.modify(end.fd(), IN | ET);
    assert_eq!(set.wait(10), [], "nothing there, so MOD finds nothing");
}

fn added_late() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(100);
    end.rx.await_bytes(100);
    let set = edge_set(&end, IN);
    assert_eq!(set.mask_of(end.fd(), 0), IN);
    assert_eq!(set.wait(10), []);
    end.recv(100);
}

/// Writes until EAGAIN, waits for the edge, and goes on; the peer reads everything.
fn out_edge() {
    let (mut end, mut peer) = link::client(V4);
    let set = edge_set(&end, OUT);
    assert_eq!(set.mask_of(end.fd(), 1000), OUT, "writable when added");
    for _ in 0..3 {
        let filled = end.tx.fill();
        while set.mask_of(end.fd(), 0) != 0 {}
        assert_eq!(set.wait(30), [], "full");
        peer.start("recv", &[filled as u64]);
        assert_eq!(set.mask_of(end.fd(), 5000), OUT, "space has returned");
        peer.finish();
    }
}

/// As [`out_edge`], by calls that only the kernel can serve.
fn out_edge_after_splice() {
    let (mut end, mut peer) = link::client(V4);
    let set = edge_set(&end, OUT);
    for _ in 0..3 {
        let start = end.tx.at;
        while end.tx.try_send(16 << 10, spliced) != Err(EAGAIN) {
            set.wait(0);
        }
        peer.start("recv", &[end.tx.at - start]);
        assert_eq!(set.mask_of(end.fd(), 5000), OUT, "space has returned");
        peer.finish();
    }
}

/// What the socket does not take is dropped with the pipe.
fn spliced(fd: Fd, bytes: &[u8]) -> Outcome {
    let pipe = fds::pipe(libc::O_CLOEXEC);
    assert_eq!(io::write(pipe.1, bytes), Ok(bytes.len()), "filling a pipe");
    let sent = io::splice(pipe.0, fd, bytes.len(), 0);
    fds::close(pipe.0).and(fds::close(pipe.1)).expect("close");
    sent
}

/// Space returns, and a write finds it before the wait does: the edge is told all the same, perhaps to another thread.
fn out_edge_after_write() {
    let (mut end, mut peer) = link::client(V4);
    let set = edge_set(&end, OUT);
    assert_eq!(set.mask_of(end.fd(), 1000), OUT, "writable when added");
    let filled = end.tx.fill();
    peer.start("recv", &[filled as u64]);
    peer.finish();
    end.send(10);
    assert_eq!(set.mask_of(end.fd(), 5000), OUT, "space has returned");
    peer.recv(10);
}

/// A socket that stays writable has no further edge after small writes.
fn writable_once() {
    let (mut end, mut peer) = link::client(V4);
    let set = edge_set(&end, OUT);
    assert_eq!(set.mask_of(end.fd(), 1000), OUT);
    for _ in 0..5 {
        end.send(10);
        peer.recv(10);
        assert_eq!(set.wait(5), []);
    }
}

fn edge_at_end() {
    let (mut end, mut peer) = link::client(V4);
    let set = edge_set(&end, IN | RDHUP);
    peer.send(50);
    assert_eq!(set.mask_of(end.fd(), 2000), IN);
    peer.shutdown(libc::SHUT_WR);
    assert_eq!(set.mask_of(end.fd(), 2000), IN | RDHUP);
    assert_eq!(set.wait(20), []);
    end.recv(50);
    end.rx.expect_eof();
    assert_eq!(set.wait(20), []);
}

/// An event loop over both directions, each served until EAGAIN, as edge-triggering requires.
fn stream() {
    const N: u64 = 8 << 20;
    let (mut end, mut peer) = link::server(V4);
    let set = edge_set(&end, IN | OUT);
    peer.start("mixed", &[N, N, 50_000, 4]);
    let (send_goal, recv_goal) = (end.tx.at + N, end.rx.at + N);
    while end.tx.at < send_goal || end.rx.at < recv_goal {
        let mask = set.mask_of(end.fd(), -1);
        if mask & IN != 0 {
            end.rx.drain_now(30_000);
        }
        if mask & OUT != 0 {
            while end.tx.at < send_goal {
                let n = 40_000.min((send_goal - end.tx.at) as usize);
                if end.tx.try_send(n, io::write) == Err(EAGAIN) {
                    break;
                }
            }
        }
    }
    peer.finish();
}

/// Random pauses on both sides, thousands of times.
fn drain_until_eagain() {
    let (mut end, mut peer) = link::client(V4);
    let set = edge_set(&end, IN);
    let rounds = 3000;
    peer.start("trickle", &[rounds, 24, 0]);
    let goal = end.rx.at + rounds * 24;
    while end.rx.at < goal {
        assert_eq!(set.mask_of(end.fd(), 5000), IN, "an edge was lost at byte {}", end.rx.at);
        end.rx.drain_now(16);
    }
    peer.finish();
    echo_once(&mut end, &mut peer);
}

fn echo_once(end: &mut End, peer: &mut Peer) {
    peer.start("echo", &[1, 100]);
    end.send(100);
    end.recv(100);
    peer.finish();
}

/// Urgent data comes by kernel, and wakes only registrations for reading.
fn arrivals_to_a_writer() {
    let (mut end, mut peer) = link::client(V4);
    let set = edge_set(&end, OUT);
    assert_eq!(set.mask_of(end.fd(), 2000), OUT);
    peer.send(100);
    assert_eq!(set.wait(30), [], "bytes");
    peer.call("urgent", &[1]);
    assert_eq!(set.wait(30), [], "urgent data");
    end.recv(100);
}

/// One thread sleeps in the set, and another one fills the buffers. The reader reads nothing until all bytes are written: they fit
/// into the kernel's buffers.
fn out_edge_for_a_sleeper() {
    const ALL: usize = 1 << 20;
    let (mut end, mut other) = link::own_pair(V4);
    let set = edge_set(&end, OUT);
    assert_eq!(set.mask_of(end.fd(), 2000), OUT);
    for _ in 0..20 {
        end.send(10);
        other.recv(10);
        set.wait(0);
    }
    let mut sent = 0;
    let mut sleeper = blocked(move || set.wait(5000));
    while sent < ALL {
        match end.tx.try_send(10_000, io::write) {
            Ok(n) => sent += n,
            Err(EAGAIN) => {
                assert_eq!(sleeper.join(), [(OUT, end.fd() as u64)], "after {sent} bytes");
                sleeper = blocked(move || set.wait(5000));
            }
            Err(e) => panic!("{e:?}"),
        }
    }
    other.recv(sent);
    drop(sleeper); // nothing wakes it
}
