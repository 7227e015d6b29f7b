//! The other process is killed or stopped: the bytes that it had written are read, then TCP's end follows.

use libc::{SIGCONT, SIGKILL, SIGSTOP};

use crate::case::{Case, case};
use crate::link;
use crate::peer::{Peer, Preload};
use crate::sys::cpu::{eventually, sleep_ms};
use crate::sys::epoll::{Epoll, IN, RDHUP};
use crate::sys::errno::{EAGAIN, ECONNRESET, EPIPE};
use crate::sys::net::Family::V4;
use crate::sys::process::in_child;
use crate::sys::select::{Bits, Sets, select};
use crate::sys::threads::{blocked, state};
use crate::sys::{fds, io, net, poll};

pub const CASES: &[Case] = &[
    case("death.survivor_reads_what_was_written", reads_all),
    case("death.with_unread_data_is_a_reset", unread_is_reset),
    case("death.reset_behind_a_part_of_what_is_waited_for", part_then_reset),
    case("death.while_streaming", while_streaming).reason("peer-closing"),
    case("death.wakes_a_blocked_reader", wakes_reader),
    case("death.wakes_a_blocked_writer", wakes_writer).bulk(),
    case("death.wakes_poll_and_epoll", wakes_waits),
    case("death.seen_by_polls_that_do_not_wait", seen_at_once),
    case("death.many_in_a_row", many_in_a_row),
    case("death.of_one_of_two_holders", one_of_two_holders),
    case("death.killed_inside_calls", killed_inside_calls),
    case("death.stopped_and_continued", stopped),
    case("death.stopped_while_full", stopped_while_full).reason("stalled").bulk(),
    case("death.stopped_then_killed", stopped_then_killed),
];

fn reads_all() {
    let (mut end, mut peer) = link::client(V4);
    let filled = peer.call("fill", &[]);
    peer.kill();
    assert_eq!(end.rx.drain(), filled);
    end.rx.expect_eof();
    assert_eq!(io::send(end.fd(), b"x", libc::MSG_NOSIGNAL), Ok(1));
    eventually("the kernel says that nobody is there", || io::send(end.fd(), b"x", libc::MSG_NOSIGNAL) == Err(EPIPE));
}

/// MSG_WAITALL returns the bytes that are there; the next call gets the error.
fn part_then_reset() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(500);
    end.rx.await_bytes(500);
    end.send(100);
    peer.call("await", &[100]);
    peer.kill();
    eventually("the reset arrives", || poll::events_of(end.fd(), 0, 100) & libc::POLLERR != 0);
    let mut bytes = [0; 1000];
    assert_eq!(io::recv(end.fd(), &mut bytes, libc::MSG_WAITALL), Ok(500));
    end.rx.arrived(&bytes[..500]);
    assert_eq!(io::recv(end.fd(), &mut bytes, libc::MSG_WAITALL), Err(ECONNRESET));
    assert_eq!(io::recv(end.fd(), &mut bytes, libc::MSG_WAITALL), Ok(0));
}

fn unread_is_reset() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(500);
    end.rx.await_bytes(500);
    end.send(100);
    peer.call("await", &[100]);
    peer.kill();
    eventually("the reset arrives", || poll::events_of(end.fd(), 0, 100) & libc::POLLERR != 0);
    end.recv(500);
    assert_eq!(end.rx.ending(), Err(ECONNRESET));
}

/// In mid-stream, at ten different moments: the received bytes are a prefix of the stream.
fn while_streaming() {
    for round in 0..10 {
        let (mut end, mut peer) = link::client(V4);
        peer.start("mixed", &[1 << 40, 0, 20_000, round]);
        end.recv(1000 + 150_000 * round as usize);
        peer.signal(SIGKILL);
        let more = end.rx.drain();
        println!("{more} bytes after the kill");
        peer.kill();
        end.close();
    }
}

fn wakes_reader() {
    let (end, peer) = link::client(V4);
    let fd = end.fd();
    let reader = blocked(move || io::read(fd, &mut [0; 10]));
    peer.kill();
    assert_eq!(reader.join(), Ok(0));
}

fn wakes_writer() {
    let (mut end, peer) = link::client(V4);
    end.tx.fill();
    let fd = end.fd();
    let writer = blocked(move || io::send(fd, &[0; 100_000], libc::MSG_NOSIGNAL));
    peer.kill();
    assert_eq!(writer.join(), Err(ECONNRESET));
}

fn wakes_waits() {
    let (end, peer) = link::client(V4);
    let fd = end.fd();
    let set = Epoll::new();
    set.add(fd, IN | RDHUP);
    let by_epoll = blocked(move || set.wait(5000));
    let by_poll = blocked(move || poll::events_of(fd, libc::POLLRDHUP, 5000));
    peer.kill();
    assert_eq!(by_epoll.join(), [(IN | RDHUP, fd as u64)]);
    assert_eq!(by_poll.join(), libc::POLLRDHUP);
}

/// Checks whether a connection can be reused, as connection pools do.
fn seen_at_once() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(10);
    end.recv(10);
    peer.kill();
    let mut entry = [poll::want(end.fd(), libc::POLLIN | libc::POLLRDHUP)];
    eventually("poll sees it", || poll::poll(&mut entry, 0) == Ok(1));
    assert_eq!(entry[0].revents, libc::POLLIN | libc::POLLRDHUP);
    let mut sets = Sets { read: Bits::of(&[end.fd()]), ..Sets::default() };
    assert_eq!(select(end.fd() + 1, &mut sets, 0).0, Ok(1));
}

/// One survivor, thirty peers that die: none leaves anything that hinders the survivor.
fn many_in_a_row() {
    for round in 0..30 {
        let (mut end, mut peer) = link::client(V4);
        peer.send(100 * round);
        peer.kill();
        assert_eq!(end.rx.drain(), 100 * round as u64);
        end.close();
    }
}

/// The connection lives on with the remaining holder.
fn one_of_two_holders() {
    let (mut end, mut peer) = link::client(V4);
    let holder = in_child(|| {
        loop {
            sleep_ms(1000);
        }
    });
    crate::sys::signal::send_to(holder.pid, SIGKILL);
    holder.wait();
    link::warm_up(&mut end, &mut peer);
}

/// A forked holder is killed repeatedly while it reads and writes: no lock stays taken.
fn killed_inside_calls() {
    let (mut end, mut peer) = link::client(V4);
    for round in 0..20 {
        let fd = end.fd();
        let holder = in_child(|| {
            loop {
                // Moves no byte, but goes through the whole path.
                let _ = io::recv(fd, &mut [0; 100], libc::MSG_PEEK | libc::MSG_DONTWAIT);
                let _ = io::send(fd, &[], libc::MSG_DONTWAIT);
            }
        });
        std::thread::sleep(std::time::Duration::from_micros(500 + 300 * round));
        crate::sys::signal::send_to(holder.pid, SIGKILL);
        holder.wait();
        peer.start("echo", &[5, 100]);
        for _ in 0..5 {
            end.send(100);
            end.recv(100);
        }
        peer.finish();
    }
}

fn stop(peer: &Peer) {
    peer.signal(SIGSTOP);
    eventually("the peer is stopped", || state(peer.pid) == Some('T'));
}

/// A stopped peer is slow, not dead.
fn stopped() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..3 {
        stop(&peer);
        end.send(1000);
        assert_eq!(io::recv(end.fd(), &mut [0], libc::MSG_DONTWAIT), Err(EAGAIN));
        assert_eq!(poll::events_of(end.fd(), libc::POLLIN, 50), 0);
        peer.signal(SIGCONT);
        peer.recv(1000);
        link::warm_up(&mut end, &mut peer);
    }
}

fn stopped_while_full() {
    let (mut end, mut peer) = link::client(V4);
    stop(&peer);
    let filled = end.tx.fill();
    assert_eq!(poll::events_of(end.fd(), libc::POLLOUT, 50), 0);
    peer.start("recv", &[filled as u64]);
    peer.signal(SIGCONT);
    assert_eq!(poll::events_of(end.fd(), libc::POLLOUT, 5000), libc::POLLOUT);
    peer.finish();
    link::warm_up(&mut end, &mut peer);
}

fn stopped_then_killed() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(700);
    stop(&peer);
    end.send(300);
    eventually("the bytes arrive", || fds::unsent(end.fd()) == 0);
    peer.kill();
    eventually("the reset arrives", || poll::events_of(end.fd(), 0, 100) & libc::POLLERR != 0);
    end.recv(700);
    assert_eq!(end.rx.ending(), Err(ECONNRESET));
    // The survivor continues with other peers.
    let (mut end, mut peer) = link::cold_client(V4, Preload::Kept);
    link::warm_up(&mut end, &mut peer);
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    assert_eq!(peer.call("ending", &[]), 0);
}
