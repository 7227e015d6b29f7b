//! Blocking calls: they wait, complete what they began, and give up at a timeout.

use std::time::Duration;

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, POLLIN, SO_RCVLOWAT, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET};

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link;
use crate::sys::cpu::{measure, sleep_ms};
use crate::sys::epoll::{self, Epoll};
use crate::sys::errno::EAGAIN;
use crate::sys::net::Family::{V4, V6};
use crate::sys::threads::blocked;
use crate::sys::{fds, io, net, poll};
use crate::ways::{receiving, sending};

pub const CASES: &[Case] = &[
    case("blocking.every_receive_waits", every_receive_waits),
    case("blocking.write_of_8_mib_writes_all", write_all).bulk(),
    case("blocking.every_send_waits_for_space", sends_wait).bulk(),
    case("blocking.receive_timeout", receive_timeout),
    case("blocking.send_timeout", send_timeout),
    case("blocking.timeout_does_not_end_the_stream", timeout_then_data),
    case("blocking.waitall_gets_all", waitall),
    case("blocking.waitall_ends_with_the_stream", waitall_eof),
    case("blocking.waitall_gives_up_at_the_timeout", waitall_timeout),
    case("blocking.waitall_peeks_until_the_stream_ends", waitall_peek),
    case("blocking.receive_low_water_mark", low_water_mark).reason("socket-option"),
    case("blocking.low_water_mark_above_what_is_unread", mark_above_unread).reason("socket-option"),
    case("blocking.low_water_mark_of_the_listener", mark_of_listener)
        .never("the kernel counts towards the mark")
        .reason("socket-option"),
    case("blocking.zero_lengths", zero_lengths),
    case("blocking.recvmmsg_fills_every_message", recvmmsg_all),
    case("blocking.recvmmsg_timeout", recvmmsg_timeout),
    case("blocking.two_threads_wait_for_one_socket", two_waiters),
    case("blocking.more_threads_wait_than_there_are_doorbells", || many_waiters(|_| ())).reason("places"),
    case("blocking.more_threads_poll_than_there_are_doorbells", || many_waiters(polls)).reason("places"),
];

/// Bytes from before count towards the mark, whichever carrier they came by.
fn mark_above_unread() {
    for round in 0..3 {
        let (mut end, mut other) = link::own_pair(V4);
        other.send(100);
        end.rx.await_bytes(100);
        let number = if round == 0 { end.fd() } else { crate::sys::fds::dup(end.fd()).expect("dup") as i32 };
        net::set_option(number, SOL_SOCKET, SO_RCVLOWAT, &500).expect("SO_RCVLOWAT");
        assert_eq!(poll::events_of(end.fd(), POLLIN, 20), 0, "too few bytes");
        other.send(400);
        assert_eq!(poll::events_of(end.fd(), POLLIN, 2000), POLLIN);
        end.recv(500);
    }
}

/// An accepted socket has its listener's mark.
fn mark_of_listener() {
    let listener = link::Listener::new(V4);
    net::set_option(listener.fd, SOL_SOCKET, SO_RCVLOWAT, &500).expect("SO_RCVLOWAT");
    let mut other = End::new(link::connect(&listener.addr(), V4), Side::Client);
    let mut end = End::new(listener.accept(), Side::Server);
    for _ in 0..20 {
        end.send(10);
        other.recv(10);
    }
    other.send(499);
    end.rx.await_bytes(499);
    assert_eq!(poll::events_of(end.fd(), POLLIN, 20), 0, "too few bytes");
    other.send(1);
    assert_eq!(poll::events_of(end.fd(), POLLIN, 2000), POLLIN);
    end.recv(500);
}

/// Each call starts on an empty socket, and must sleep until the peer sends.
fn every_receive_waits() {
    let (mut end, mut peer) = link::client(V4);
    let waiting = receiving::ALL.iter().filter(|way| !way.0.contains("dontwait"));
    for (name, call) in waiting {
        peer.after(20).start("send", &[1]);
        let (clock, cpu) = measure(|| assert_eq!(end.rx.try_recv(1, *call), Ok(1), "{name}"));
        assert!(clock >= Duration::from_millis(15), "{name} came back after {clock:?}");
        assert!(cpu < clock, "{name} used {cpu:?} of CPU in {clock:?}");
        peer.finish();
    }
}

fn write_all() {
    const N: usize = 8 << 20;
    let (mut end, mut peer) = link::client(V6);
    peer.after(50).start("sip", &[16, N as u64 / 16, 5]);
    assert_eq!(end.tx.try_send(N, io::write), Ok(N), "a blocking write writes everything");
    peer.finish();
}

/// Fills the connection. Then each call must wait until the peer has read.
fn sends_wait() {
    let (mut end, mut peer) = link::client(V4);
    for (name, call) in &sending::ALL[..5] {
        let queued = end.tx.fill() + 100_000;
        peer.after(20).start("recv", &[queued as u64]);
        let (clock, _) = measure(|| assert_eq!(end.tx.try_send(100_000, *call), Ok(100_000), "{name}"));
        assert!(clock >= Duration::from_millis(15), "{name} came back after {clock:?}");
        peer.finish();
    }
}

fn receive_timeout() {
    let (mut end, _peer) = link::client(V4);
    net::set_timeout(end.fd(), SO_RCVTIMEO, 60);
    let waiting = receiving::ALL.iter().filter(|way| !way.0.contains("dontwait"));
    // aio's and splice's rules are the same here, but fread hides the error code.
    for (name, call) in waiting.filter(|way| way.0 != "fread") {
        let (clock, _) = measure(|| assert_eq!(end.rx.try_recv(10, *call), Err(EAGAIN), "{name}"));
        assert!(clock >= Duration::from_millis(55), "{name} gave up after {clock:?}");
        assert!(clock < Duration::from_secs(2), "{name} gave up only after {clock:?}");
    }
}

fn send_timeout() {
    let (mut end, mut peer) = link::client(V4);
    net::set_timeout(end.fd(), SO_SNDTIMEO, 60);
    let filled = end.tx.fill();
    let (clock, _) = measure(|| assert_eq!(end.tx.try_send(100, io::write), Err(EAGAIN)));
    assert!(clock >= Duration::from_millis(55), "gave up after {clock:?}");
    peer.recv(filled);
    // If a part is written before the timeout, the call returns that part.
    let part = end.tx.try_send(64 << 20, io::write).expect("a part fits");
    assert!(part > 0 && part < 64 << 20, "{part} bytes were written with nobody reading");
    peer.recv(part);
}

fn timeout_then_data() {
    let (mut end, mut peer) = link::client(V4);
    net::set_timeout(end.fd(), SO_RCVTIMEO, 30);
    for _ in 0..5 {
        assert_eq!(end.rx.try_recv(10, io::read), Err(EAGAIN));
        peer.send(10);
        end.recv(10);
    }
    link::warm_up(&mut end, &mut peer);
}

fn waitall() {
    let (mut end, mut peer) = link::client(V4);
    peer.start("trickle", &[10, 1000, 5]);
    let all = |fd, buf: &mut [u8]| io::recv(fd, buf, MSG_WAITALL);
    assert_eq!(end.rx.try_recv(10_000, all), Ok(10_000));
    peer.finish();
    peer.start("trickle", &[4, 100_000, 5]);
    let all = |fd, buf: &mut [u8]| io::recvmsg(fd, buf, MSG_WAITALL);
    assert_eq!(end.rx.try_recv(400_000, all), Ok(400_000));
    peer.finish();
}

fn waitall_eof() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(700);
    peer.after(20).start("shutdown", &[libc::SHUT_WR as u64]);
    let all = |fd, buf: &mut [u8]| io::recv(fd, buf, MSG_WAITALL);
    assert_eq!(end.rx.try_recv(1000, all), Ok(700));
    end.rx.expect_eof();
    peer.finish();
}

fn waitall_timeout() {
    let (mut end, mut peer) = link::client(V4);
    net::set_timeout(end.fd(), SO_RCVTIMEO, 50);
    peer.send(300);
    let all = |fd, buf: &mut [u8]| io::recv(fd, buf, MSG_WAITALL);
    assert_eq!(end.rx.try_recv(1000, all), Ok(300));
    assert_eq!(end.rx.try_recv(1000, all), Err(EAGAIN));
}

/// A peek of a hundred bytes that does not wait longer than it must, and what it has found.
fn quick_peek(end: &End, flags: i32) -> usize {
    let mut buf = [0; 100];
    let mut n = 0;
    let (clock, _) = measure(|| n = io::recv(end.fd(), &mut buf, MSG_PEEK | MSG_WAITALL | flags).expect("a peek"));
    assert!(clock < Duration::from_millis(700), "the peek took {clock:?}");
    end.rx.peeked(&buf[..n]);
    n
}

/// With MSG_WAITALL a peek waits for the rest, unless the socket does not wait, or nothing more can come.
fn waitall_peek() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(10);
    end.rx.await_bytes(10);
    assert_eq!(quick_peek(&end, MSG_DONTWAIT), 10);
    fds::set_nonblocking(end.fd(), true);
    assert_eq!(quick_peek(&end, 0), 10);
    fds::set_nonblocking(end.fd(), false);
    net::set_timeout(end.fd(), SO_RCVTIMEO, -1000);
    assert_eq!(quick_peek(&end, 0), 10);
    net::set_timeout(end.fd(), SO_RCVTIMEO, 0);
    peer.after(20).start("send", &[90]);
    assert_eq!(quick_peek(&end, 0), 100);
    peer.finish();
    end.recv(90);
    peer.shutdown(libc::SHUT_WR);
    assert_eq!(poll::events_of(end.fd(), libc::POLLRDHUP, 2000), libc::POLLRDHUP);
    assert_eq!(quick_peek(&end, 0), 10);
    end.recv(10);
    end.rx.expect_eof();
}

/// Neither a read nor a wait returns with fewer bytes than the mark.
fn low_water_mark() {
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    let set = Epoll::new();
    set.add(fd, epoll::IN);
    net::set_option(fd, SOL_SOCKET, SO_RCVLOWAT, &500).expect("SO_RCVLOWAT");
    peer.send(499);
    end.rx.await_bytes(499);
    assert_eq!(poll::events_of(fd, POLLIN, 20), 0, "poll reports too few bytes");
    assert_eq!(set.mask_of(fd, 20), 0, "epoll reports too few bytes");
    assert_eq!(end.rx.try_recv(499, |fd, buf| io::recv(fd, buf, MSG_DONTWAIT)), Ok(499));
    // A read that sleeps on an empty socket. Linux counts the mark anew after each part that was read.
    let reader = blocked(move || {
        let mut buf = vec![0; 600];
        io::read(fd, &mut buf).map(|n| buf[..n].to_vec())
    });
    peer.call("trickle", &[4, 100, 5]);
    assert!(!reader.is_finished(), "read did not wait for the mark");
    peer.send(100);
    let bytes = reader.join().expect("read");
    assert_eq!(bytes.len(), 500);
    end.rx.arrived(&bytes);
    peer.send(500);
    assert_eq!(poll::events_of(fd, POLLIN, 2000), POLLIN);
    assert_eq!(set.mask_of(fd, 2000), epoll::IN);
    end.recv(500);
}

fn zero_lengths() {
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    assert_eq!(io::write(fd, &[]), Ok(0));
    assert_eq!(io::send(fd, &[], 0), Ok(0));
    assert_eq!(io::read(fd, &mut []), Ok(0), "read of nothing does not wait");
    assert_eq!(io::recv(fd, &mut [], MSG_DONTWAIT), Err(EAGAIN), "recv of nothing does");
    peer.send(10);
    end.rx.await_bytes(10);
    assert_eq!(io::recv(fd, &mut [], 0), Ok(0));
    assert_eq!(io::read(fd, &mut []), Ok(0));
    end.recv(10);
}

/// Without MSG_WAITFORONE the call waits until every message has bytes.
fn recvmmsg_all() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(50);
    end.rx.await_bytes(50);
    peer.after(20).start("send", &[50]);
    assert_eq!(end.rx.try_recv(100, |fd, buf| io::recvmmsg(fd, buf, 0)), Ok(100));
    peer.finish();
}

/// SO_RCVTIMEO ends the call between messages; messages that came are returned.
fn recvmmsg_timeout() {
    let (mut end, mut peer) = link::client(V4);
    net::set_timeout(end.fd(), SO_RCVTIMEO, 40);
    peer.send(30);
    end.rx.await_bytes(30);
    assert_eq!(end.rx.try_recv(100, |fd, buf| io::recvmmsg(fd, buf, 0)), Ok(30));
    assert_eq!(end.rx.try_recv(100, |fd, buf| io::recvmmsg(fd, buf, 0)), Err(EAGAIN));
}

/// A thread that finds every doorbell of the process taken waits in the kernel.
fn many_waiters(before: fn(&End)) {
    const WAITERS: u64 = 70;
    let (mut clients, servers): (Vec<_>, Vec<_>) = (0..WAITERS).map(|n| link::numbered_pair(V4, n)).unzip();
    let waiting: Vec<_> = servers
        .into_iter()
        .map(|mut server| {
            blocked(move || {
                before(&server);
                server.recv(100);
                server.send(100);
            })
        })
        .collect();
    let (took, used) = measure(|| sleep_ms(300));
    assert!(used < took / 4, "threads that wait use {used:?} in {took:?}");
    for client in &mut clients {
        client.send(100);
        client.recv(100);
    }
    waiting.into_iter().for_each(|thread| thread.join());
}

fn polls(end: &End) {
    assert_eq!(poll::events_of(end.fd(), POLLIN, -1), POLLIN);
}

/// Each byte wakes one of the two threads; no byte is lost, and the end wakes both.
fn two_waiters() {
    let (mut a, b) = link::own_pair(V4);
    let fd = b.fd();
    let count = move || {
        let mut total = 0;
        loop {
            match io::read(fd, &mut [0; 8]).expect("read") {
                0 => return total,
                n => total += n,
            }
        }
    };
    let threads = [std::thread::spawn(count), std::thread::spawn(count)];
    for _ in 0..50 {
        a.send(8);
        sleep_ms(1);
    }
    net::shutdown(a.fd(), libc::SHUT_WR).expect("shutdown");
    let got: usize = threads.into_iter().map(|t| t.join().expect("a reader")).sum();
    assert_eq!(got, 400);
    assert!(fds::is_open(fd));
}
