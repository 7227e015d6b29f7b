//! Sockets and other descriptors in one wait: each of them wakes the wait, none starves, and idle waits use no processor time.

use std::time::Duration;

use crate::case::{Case, case};
use crate::link;
use crate::sys::cpu::{measure, sleep_ms};
use crate::sys::epoll::{ET, Epoll, IN};
use crate::sys::net::Family::V4;
use crate::sys::poll::{poll, want};
use crate::sys::select::{Bits, Sets, select};
use crate::sys::threads::blocked;
use crate::sys::{Fd, fds, io};

pub const CASES: &[Case] = &[
    case("mixed.epoll_is_woken_by_either", || woken(by_epoll)),
    case("mixed.poll_is_woken_by_either", || woken(by_poll)),
    case("mixed.select_is_woken_by_either", || woken(by_select)),
    case("mixed.busy_socket_does_not_starve_a_pipe", busy_socket).bulk(),
    case("mixed.busy_pipe_does_not_starve_a_socket", busy_pipe),
    case("mixed.timer_ticks_beside_a_busy_socket", timer_beside_stream).bulk(),
    case("mixed.unix_socket_beside_tcp", other_sockets),
    case("mixed.idle_epoll_costs_nothing", || idle(by_epoll)),
    case("mixed.idle_poll_costs_nothing", || idle(by_poll)),
    case("mixed.idle_select_costs_nothing", || idle(by_select)),
    case("mixed.idle_read_costs_nothing", idle_read),
];

/// Waits for any of the descriptors. Returns those that are readable.
type Wait = fn(&[Fd], i32) -> Vec<Fd>;

fn by_epoll(of: &[Fd], ms: i32) -> Vec<Fd> {
    let set = Epoll::new();
    of.iter().for_each(|&fd| set.add(fd, IN));
    let ready = set.wait(ms).iter().map(|e| e.1 as Fd).collect();
    fds::close(set.fd).expect("close the set");
    ready
}

fn by_poll(of: &[Fd], ms: i32) -> Vec<Fd> {
    let mut fds: Vec<_> = of.iter().map(|&fd| want(fd, libc::POLLIN)).collect();
    poll(&mut fds, ms).expect("poll");
    fds.iter().filter(|f| f.revents != 0).map(|f| f.fd).collect()
}

fn by_select(of: &[Fd], ms: i32) -> Vec<Fd> {
    let mut sets = Sets { read: Bits::of(of), ..Sets::default() };
    let limit = of.iter().max().map_or(0, |max| max + 1);
    select(limit, &mut sets, ms.into()).0.expect("select");
    of.iter().copied().filter(|&fd| sets.read.has(fd)).collect()
}

/// Whichever descriptor becomes ready wakes a sleeping thread, and no other one is reported.
fn woken(wait: Wait) {
    let (mut a, mut b) = link::own_pair(V4);
    let (pipe, event) = (fds::pipe(libc::O_CLOEXEC), fds::eventfd(0));
    let all = [b.fd(), pipe.0, event];
    for round in 0..10 {
        let sleeper = || blocked(move || wait(&all, 5000));
        let waiting = sleeper();
        a.send(10);
        assert_eq!(waiting.join(), [b.fd()], "round {round}: the socket");
        b.recv(10);
        let waiting = sleeper();
        io::write(pipe.1, b"x").expect("write to the pipe");
        assert_eq!(waiting.join(), [pipe.0], "round {round}: the pipe");
        io::read(pipe.0, &mut [0]).expect("read the pipe");
        let waiting = sleeper();
        io::write(event, &1u64.to_ne_bytes()).expect("write to the eventfd");
        assert_eq!(waiting.join(), [event], "round {round}: the eventfd");
        io::read(event, &mut [0; 8]).expect("read the eventfd");
    }
}

/// The socket is readable at every call; the pipe must be reported, too.
fn busy_socket() {
    let (mut end, mut peer) = link::client(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    let set = Epoll::new();
    set.add(end.fd(), IN);
    set.add(pipe.0, IN);
    peer.start("mixed", &[2 << 20, 0, 20_000, 3]);
    let (goal, mut waits, mut seen) = (end.rx.at + (2 << 20), 0, 0);
    io::write(pipe.1, b"x").expect("write to the pipe");
    while end.rx.at < goal {
        // Room for one event at a time makes starving easy.
        for (_, fd) in set.try_wait(1, 3000).expect("epoll_wait") {
            waits += 1;
            if fd as Fd == pipe.0 {
                seen += 1;
                waits = 0;
            } else {
                end.rx.try_recv(3000, io::read).expect("readable");
            }
        }
        assert!(waits < 20, "the pipe was left out {waits} times in a row");
    }
    assert!(seen > 10, "the pipe came up only {seen} times");
    peer.finish();
}

/// The pipe is always readable; every arrival on the socket must be reported soon.
fn busy_pipe() {
    let (mut end, mut peer) = link::client(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    io::write(pipe.1, b"x").expect("write to the pipe");
    for trigger in [0, ET] {
        let set = Epoll::new();
        set.add(pipe.0, IN);
        set.add(end.fd(), IN | trigger);
        for round in 0..50 {
            peer.send(10);
            end.rx.await_bytes(10);
            let tries = (0..10).find(|_| set.try_wait(1, 1000).expect("epoll_wait")[0].1 as Fd == end.fd());
            assert!(tries.is_some(), "round {round}: the socket was left out ten times in a row");
            end.recv(10);
        }
        fds::close(set.fd).expect("close the set");
    }
}

fn timer_beside_stream() {
    const N: u64 = 24 << 20;
    let (mut end, mut peer) = link::client(V4);
    let timer = fds::ticking_timerfd(2);
    let set = Epoll::new();
    set.add(end.fd(), IN | ET);
    set.add(timer, IN);
    peer.start("mixed", &[N, 0, 40_000, 3]);
    fds::set_nonblocking(end.fd(), true);
    let (goal, mut ticks) = (end.rx.at + N, 0);
    while end.rx.at < goal || ticks < 10 {
        for (_, fd) in set.wait(3000) {
            if fd as Fd == timer {
                io::read(timer, &mut [0; 8]).expect("read the timer");
                ticks += 1;
            } else {
                end.rx.drain_now(20_000);
            }
        }
    }
    peer.finish();
}

/// Sockets that are not TCP behave as ever in the same set.
fn other_sockets() {
    let (mut a, mut b) = link::own_pair(V4);
    let (left, right) = fds::unix_pair();
    let set = Epoll::new();
    set.add(b.fd(), IN);
    set.add(right, IN);
    let both: Wait = by_poll;
    for _ in 0..10 {
        assert_eq!(io::write(left, b"unix"), Ok(4));
        a.send(10);
        b.rx.await_bytes(10);
        // One wait may report only one of them, but the other must follow soon.
        let expected = std::collections::BTreeSet::from([(IN, b.fd() as u64), (IN, right as u64)]);
        let seen: std::collections::BTreeSet<_> = (0..10).flat_map(|_| set.wait(2000)).collect();
        assert_eq!(seen, expected);
        assert_eq!(both(&[b.fd(), right], 2000).len(), 2);
        let mut text = [0; 8];
        assert_eq!(io::recv(right, &mut text, 0), Ok(4));
        assert_eq!(&text[..4], b"unix");
        b.recv(10);
    }
}

const IDLE_MS: u64 = 600;
/// Processor time of a sleeping process: 5 % covers a bounded spin before each sleep, and the noise of a busy machine.
const IDLE_CPU: Duration = Duration::from_millis(IDLE_MS / 20);

fn idle(wait: Wait) {
    let (mut a, mut b) = link::own_pair(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    for round in 0..2 {
        let (clock, cpu) = measure(|| assert_eq!(wait(&[b.fd(), pipe.0], IDLE_MS as i32 / 2).len(), 0));
        assert!(clock >= Duration::from_millis(IDLE_MS / 2), "woke up for nothing");
        assert!(cpu < IDLE_CPU, "round {round}: {cpu:?} of CPU in {clock:?} of waiting");
        a.send(10);
        b.recv(10);
    }
}

fn idle_read() {
    let (mut end, mut peer) = link::client(V4);
    peer.after(IDLE_MS).start("send", &[10]);
    let (clock, cpu) = measure(|| end.recv(10));
    assert!(cpu < IDLE_CPU, "{cpu:?} of CPU in {clock:?} of waiting");
    peer.finish();
    let (clock, cpu) = measure(|| sleep_ms(IDLE_MS / 2));
    assert!(cpu < IDLE_CPU, "{cpu:?} of CPU in {clock:?} of doing nothing: a thread of the library's?");
}
