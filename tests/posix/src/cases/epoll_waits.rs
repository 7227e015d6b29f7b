//! Waiting on an epoll set: timeouts, other threads that change it, several waiters.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::case::{Case, case};
use crate::link;
use crate::sys::cpu::{eventually, measure, sleep_ms};
use crate::sys::epoll::{ET, Epoll, Event, IN, ONESHOT, OUT};
use crate::sys::errno::{EAGAIN, Errno};
use crate::sys::net::Family::V4;
use crate::sys::threads::{Blocked, blocked};
use crate::sys::{Fd, fds, io, net, signal};

pub const CASES: &[Case] = &[
    case("epoll_wait.timeouts", timeouts),
    case("epoll_wait.every_call_wakes_for_data", every_call),
    case("epoll_wait.sees_a_socket_added_by_another_thread", added_by_another),
    case("epoll_wait.sees_a_change_by_another_thread", modified_by_another),
    case("epoll_wait.is_silent_after_another_thread_closed_it", closed_by_another),
    case("epoll_wait.two_threads_on_one_set", two_threads),
    case("epoll_wait.worker_threads_with_oneshot", oneshot_workers).bulk(),
    case("epoll_wait.a_sleeper_beside_one_that_only_looks", sleeper_beside_looker),
    case("epoll_wait.a_full_writer_beside_another_set", writer_beside_waiter).bulk(),
    case("epoll_wait.a_set_for_each_thread", set_for_each_thread),
    case("epoll_wait.event_goes_to_the_right_set", right_set),
];

fn timeouts() {
    let (end, _peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN);
    let none = signal::set_of(&[]);
    for ms in [0, 1, 40] {
        let check = |name: &str, wait: &mut dyn FnMut()| {
            let (clock, _) = measure(wait);
            assert!(clock >= Duration::from_millis(ms), "{name}({ms}) came back after {clock:?}");
            assert!(clock < Duration::from_secs(2), "{name}({ms}) came back only after {clock:?}");
        };
        check("epoll_wait", &mut || assert_eq!(set.wait(ms as i32), []));
        check("epoll_pwait", &mut || assert_eq!(set.pwait(ms as i32, &none), Ok(vec![])));
        check("epoll_pwait2", &mut || assert_eq!(set.pwait2(ms as i32, Some(&none)), Ok(vec![])));
    }
}

/// A wait with a timeout in milliseconds.
type WaitMs<'a> = dyn Fn(i32) -> Result<Vec<Event>, Errno> + 'a;

fn every_call() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN);
    let expected = Ok(vec![(IN, end.fd() as u64)]);
    let none = signal::set_of(&[]);
    let calls: [(&str, &WaitMs); 4] = [
        ("epoll_wait", &|ms| set.try_wait(4, ms)),
        ("epoll_pwait", &|ms| set.pwait(ms, &none)),
        ("epoll_pwait2", &|ms| set.pwait2(ms, None)),
        ("epoll_pwait2 with a mask", &|ms| set.pwait2(ms, Some(&none))),
    ];
    for (name, wait) in calls {
        for ms in [-1, 5000] {
            peer.after(10).start("send", &[10]);
            assert_eq!(wait(ms), expected, "{name}({ms})");
            peer.finish();
            assert_eq!(wait(0), expected, "{name}(0)");
            end.recv(10);
            assert_eq!(wait(0), Ok(vec![]), "{name}(0)");
        }
    }
}

/// A thread that sleeps on the set until one event comes.
fn sleeper(set: Epoll) -> Blocked<Vec<Event>> {
    blocked(move || set.wait(5000))
}

fn added_by_another() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    let thread = sleeper(set);
    set.add(end.fd(), IN);
    peer.send(10);
    assert_eq!(thread.join(), [(IN, end.fd() as u64)]);
    set.delete(end.fd());
    let thread = sleeper(set);
    set.add(end.fd(), IN);
    assert_eq!(thread.join(), [(IN, end.fd() as u64)], "data was there already");
    end.recv(10);
}

fn modified_by_another() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), 0);
    peer.send(10);
    end.rx.await_bytes(10);
    for (mask, trigger) in [(IN, 0), (OUT, 0), (IN, ET), (IN, ONESHOT)] {
        let thread = sleeper(set);
        set.modify(end.fd(), mask | trigger);
        assert_eq!(thread.join(), [(mask, end.fd() as u64)]);
        set.modify(end.fd(), 0);
    }
    end.recv(10);
}

/// The waiting thread gets no event for the closed socket, and does not return early.
fn closed_by_another() {
    let (end, mut peer) = link::client(V4);
    let (mut a, mut b) = link::numbered_pair(V4, 5);
    let set = Epoll::new();
    set.add(end.fd(), IN);
    set.add(a.fd(), IN);
    let thread = sleeper(set);
    end.close();
    let _ = peer.call("ending", &[]);
    sleep_ms(20);
    assert!(!thread.is_finished(), "closing a member is no event");
    b.send(10);
    assert_eq!(thread.join(), [(IN, a.fd() as u64)]);
    a.recv(10);
}

/// Every arrival is reported to at least one of the two threads, and all bytes are read once.
fn two_threads() {
    const ROUNDS: usize = 300;
    let (mut a, b) = link::own_pair(V4);
    let set = Epoll::new();
    fds::set_nonblocking(b.fd(), true);
    set.add(b.fd(), IN | ET);
    let got = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while got.load(Ordering::SeqCst) < ROUNDS * 10 {
                    for _ in set.wait(50) {
                        while let Ok(n) = io::read(b.fd(), &mut [0; 4]) {
                            got.fetch_add(n, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
        for round in 1..=ROUNDS {
            a.send(10);
            eventually("the arrival was read", || got.load(Ordering::SeqCst) == round * 10);
        }
    });
}

/// One worker at a time has each socket, and every byte is in its place.
fn oneshot_workers() {
    const CONNECTIONS: usize = 8;
    const TOTAL: usize = 200_000;
    let set = Epoll::new();
    let (writers, readers): (Vec<_>, Vec<_>) = (0..CONNECTIONS)
        .map(|i| {
            let (a, b) = link::numbered_pair(V4, i as u64);
            fds::set_nonblocking(b.fd(), true);
            set.control(libc::EPOLL_CTL_ADD, b.fd(), IN | ONESHOT, i as u64).expect("add");
            (a, std::sync::Mutex::new(b))
        })
        .unzip();
    let got = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while got.load(Ordering::SeqCst) < CONNECTIONS * TOTAL {
                    for (_, i) in set.wait(50) {
                        let mut end = readers[i as usize].try_lock().expect("one worker at a time");
                        got.fetch_add(end.rx.drain_now(5000), Ordering::SeqCst);
                        let fd = end.fd();
                        drop(end);
                        set.control(libc::EPOLL_CTL_MOD, fd, IN | ONESHOT, i).expect("arm again");
                    }
                }
            });
        }
        for mut a in writers {
            s.spawn(move || (0..TOTAL / 1000).for_each(|_| a.send(1000)));
        }
    });
}

/// One thread sleeps in the set. Another one, while its connection is new, only looks into the set and leaves. Every message is
/// reported.
fn sleeper_beside_looker() {
    const MESSAGES: usize = 40;
    for round in 0..25 {
        let (mut a, b) = link::cold_pair_ends(V4, round);
        fds::set_nonblocking(b.fd(), true);
        let (set, fd) = (Epoll::new(), b.fd());
        set.control(libc::EPOLL_CTL_ADD, fd, IN | ONESHOT, 0).expect("add");
        let (end, got) = (std::sync::Mutex::new(b), AtomicUsize::new(0));
        let take = |events: Vec<Event>| {
            if !events.is_empty() {
                got.fetch_add(end.lock().expect("the end").rx.drain_now(5000), Ordering::SeqCst);
                set.control(libc::EPOLL_CTL_MOD, fd, IN | ONESHOT, 0).expect("arm again");
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| {
                while got.load(Ordering::SeqCst) < MESSAGES {
                    let events = set.wait(5000);
                    assert!(!events.is_empty(), "a message was not heard");
                    take(events);
                }
            });
            s.spawn(|| {
                while got.load(Ordering::SeqCst) < MESSAGES / 2 {
                    take(set.wait(0));
                }
            });
            for sent in 0..MESSAGES {
                a.send(1);
                eventually("the message is taken", || got.load(Ordering::SeqCst) > sent);
            }
        });
        a.close();
        fds::close(fd).expect("close");
    }
}

/// A thread repeatedly waits for space in its set, while another one waits in its own set, for short times.
fn writer_beside_waiter() {
    const TOTAL: usize = 2 << 20;
    let (mut end, mut peer) = link::client(V4);
    fds::set_nonblocking(end.fd(), true);
    net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &16384).expect("SO_SNDBUF");
    peer.set_option(libc::SOL_SOCKET, libc::SO_RCVBUF, 16384);
    let (quiet, _other) = link::numbered_pair(V4, 3);
    let done = AtomicUsize::new(0);
    peer.start("recv", &[TOTAL as u64]);
    std::thread::scope(|s| {
        s.spawn(|| {
            let set = Epoll::new();
            set.add(quiet.fd(), IN);
            while done.load(Ordering::SeqCst) == 0 {
                assert_eq!(set.wait(1), []);
            }
        });
        let set = Epoll::new();
        set.add(end.fd(), OUT | ET);
        let mut left = TOTAL;
        while left > 0 {
            assert_eq!(set.wait(5000), [(OUT, end.fd() as u64)], "with {left} bytes left");
            while left > 0 {
                match end.tx.try_send(left.min(50_000), |fd, buf| io::send(fd, buf, libc::MSG_NOSIGNAL)) {
                    Ok(n) => left -= n,
                    Err(e) => {
                        assert_eq!(e, EAGAIN);
                        break;
                    }
                }
            }
        }
        done.store(1, Ordering::SeqCst);
    });
    peer.finish();
}

/// As many threads as connections, each with its own set; all have traffic at the same time.
fn set_for_each_thread() {
    std::thread::scope(|s| {
        for i in 0..6 {
            s.spawn(move || {
                let (mut a, mut b) = link::numbered_pair(V4, i);
                let set = Epoll::new();
                set.add(a.fd(), IN);
                set.add(b.fd(), IN);
                for _ in 0..300 {
                    a.send(30);
                    assert_eq!(set.wait(3000), [(IN, b.fd() as u64)]);
                    b.recv(30);
                    b.send(30);
                    assert_eq!(set.wait(3000), [(IN, a.fd() as u64)]);
                    a.recv(30);
                }
            });
        }
    });
}

/// Two threads wait on two sets with one socket each; neither gets the other's event.
fn right_set() {
    let (mut a, mut b) = link::numbered_pair(V4, 1);
    let (mut c, mut d) = link::numbered_pair(V4, 2);
    let watch = |fd: Fd| {
        let set = Epoll::new();
        set.add(fd, IN);
        set
    };
    let sets = [watch(b.fd()), watch(d.fd())];
    for round in 0..100 {
        let threads = sets.map(|set| std::thread::spawn(move || set.wait(5000)));
        let senders = if round % 2 == 0 { [&mut a, &mut c] } else { [&mut c, &mut a] };
        for sender in senders {
            sender.send(10);
        }
        let events = threads.map(|t| t.join().expect("a waiter"));
        assert_eq!(events, [[(IN, b.fd() as u64)], [(IN, d.fd() as u64)]], "round {round}");
        b.recv(10);
        d.recv(10);
    }
}
