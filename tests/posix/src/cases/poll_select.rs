//! poll, ppoll, select and pselect.

use std::time::Duration;

use libc::{POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, SA_RESTART, SIGALRM};

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::cpu::measure;
use crate::sys::errno::{EBADF, EINTR, EINVAL, Outcome};
use crate::sys::net::Family::{V4, V6};
use crate::sys::poll::{poll, want};
use crate::sys::select::{Bits, Sets, pselect, select, under_select};
use crate::sys::{Fd, fds, io, net, poll as p, signal};

pub const CASES: &[Case] = &[
    case("poll.every_poll_call_v4", || every_poll(V4)),
    case("poll.every_poll_call_v6", || every_poll(V6)),
    case("poll.many_descriptors", many),
    case("poll.negative_closed_and_doubled_entries", odd_entries),
    case("poll.timeouts", timeouts),
    case("poll.no_descriptors_is_a_sleep", nothing).no_connection(),
    case("poll.in_and_out_at_once", in_and_out).bulk(),
    case("poll.masks_at_the_end", at_the_end),
    case("poll.quiet_connections_cost_nothing", quiet).spins().bulk(),
    case("poll.too_many_descriptors", too_many).no_connection(),
    case("select.every_select_call_v4", || every_select(V4)),
    case("select.every_select_call_v6", || every_select(V6)),
    case("select.read_and_write_sets", read_and_write).bulk(),
    case("select.time_left_is_written_back", time_left),
    case("select.numbers_above_1024", high_numbers),
    case("select.closed_descriptor", closed),
    case("select.end_is_readable", end_is_readable),
    case("select.unready_bits_are_cleared", bits_cleared),
    case("select.a_hang_up_is_no_exception", hang_up),
    case("select.news_beside_a_hang_up", beside_a_hang_up),
    case("select.signals_beside_a_hang_up", signal_beside_a_hang_up),
];

type Poll = fn(&mut [libc::pollfd], i32) -> Outcome;
type Select = fn(Fd, &mut Sets) -> Outcome;

fn every_poll(family: crate::sys::net::Family) {
    let (mut end, mut peer) = link::client(family);
    let calls: [(&str, Poll); 5] = [
        ("poll", poll),
        ("__poll", p::under_poll),
        ("__poll_chk", p::poll_chk),
        ("ppoll", |fds, ms| p::ppoll(fds, ms, None)),
        ("__ppoll_chk", p::ppoll_chk),
    ];
    for (name, call) in calls {
        for ms in [-1, 5000] {
            let mut fds = [want(end.fd(), POLLIN)];
            assert_eq!(call(&mut fds, 0), Ok(0), "{name}: nothing there");
            peer.after(10).start("send", &[10]);
            assert_eq!(call(&mut fds, ms), Ok(1), "{name}({ms})");
            assert_eq!(fds[0].revents, POLLIN, "{name}");
            peer.finish();
            assert_eq!(call(&mut fds, 0), Ok(1), "{name} is level-triggered");
            end.recv(10);
            assert_eq!(call(&mut fds, 5), Ok(0), "{name}: drained");
            assert_eq!(fds[0].revents, 0, "{name} clears revents");
        }
    }
}

/// Spinning ends, whichever carrier the connections use.
fn quiet() {
    let mut pairs: Vec<_> = (0..8).map(|i| link::numbered_pair(V4, i)).collect();
    let mut fds: Vec<_> = pairs.iter().map(|(_, b)| want(b.fd(), POLLIN)).collect();
    for round in 0..400 {
        let (a, b) = &mut pairs[round % 8];
        std::thread::scope(|s| {
            s.spawn(|| a.send(5 + round % 8));
            assert_eq!(poll(&mut fds, 5000), Ok(1), "round {round}");
        });
        b.recv(5 + round % 8);
    }
    let (clock, cpu) = measure(|| assert_eq!(poll(&mut fds, 400), Ok(0)));
    assert!(cpu < clock / 4, "{cpu:?} of CPU time in {clock:?} of waiting");
}

/// Forty connections, some ready: exactly those are reported, wherever they are in the list.
fn many() {
    let mut pairs: Vec<_> = (0..40).map(|i| link::numbered_pair(V4, i)).collect();
    let mut rng = crate::rng::Rng::new(crate::rng::run_seed());
    for round in 0..30 {
        let ready: Vec<bool> = pairs.iter().map(|_| rng.below(5) == 0).collect();
        for (pair, _) in pairs.iter_mut().zip(&ready).filter(|(_, ready)| **ready) {
            pair.0.send(5);
            pair.1.rx.await_bytes(5);
        }
        let mut fds: Vec<_> = pairs.iter().map(|(_, b)| want(b.fd(), POLLIN)).collect();
        let n = ready.iter().filter(|r| **r).count();
        assert_eq!(poll(&mut fds, if n == 0 { 0 } else { 2000 }), Ok(n), "round {round}");
        let got: Vec<bool> = fds.iter().map(|f| f.revents == POLLIN).collect();
        assert_eq!(got, ready, "round {round}");
        for (pair, _) in pairs.iter_mut().zip(&ready).filter(|(_, ready)| **ready) {
            pair.1.recv(5);
        }
    }
}

fn odd_entries() {
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    let mut fds = [want(-1, POLLIN), want(9999, POLLIN), want(fd, POLLIN), want(fd, POLLOUT), want(-fd, POLLIN)];
    assert_eq!(poll(&mut fds, 1000), Ok(2));
    assert_eq!(fds.map(|f| f.revents), [0, POLLNVAL, 0, POLLOUT, 0]);
    peer.send(1);
    end.rx.await_bytes(1);
    assert_eq!(poll(&mut fds, 1000), Ok(3));
    assert_eq!(fds.map(|f| f.revents), [0, POLLNVAL, POLLIN, POLLOUT, 0]);
    end.recv(1);
    let mut fds = [want(-1, POLLIN), want(fd, POLLIN)];
    assert_eq!(poll(&mut fds, 20), Ok(0));
}

fn timeouts() {
    let (end, _peer) = link::client(V4);
    for ms in [0, 1, 60] {
        let (clock, _) = measure(|| assert_eq!(p::events_of(end.fd(), POLLIN, ms), 0));
        assert!(clock >= Duration::from_millis(ms as u64), "poll({ms}) came back after {clock:?}");
        assert!(clock < Duration::from_secs(2), "poll({ms}) came back only after {clock:?}");
        let mut sets = Sets { read: Bits::of(&[end.fd()]), ..Sets::default() };
        let (clock, _) = measure(|| assert_eq!(select(end.fd() + 1, &mut sets, ms.into()).0, Ok(0)));
        assert!(clock >= Duration::from_millis(ms as u64), "select({ms}) came back after {clock:?}");
    }
}

fn nothing() {
    let (clock, _) = measure(|| assert_eq!(poll(&mut [], 30), Ok(0)));
    assert!(clock >= Duration::from_millis(30));
    let (clock, _) = measure(|| assert_eq!(select(0, &mut Sets::default(), 30).0, Ok(0)));
    assert!(clock >= Duration::from_millis(30));
}

fn in_and_out() {
    let (mut end, mut peer) = link::client(V4);
    let both = POLLIN | POLLOUT;
    assert_eq!(p::events_of(end.fd(), both, 0), POLLOUT);
    peer.send(10);
    end.rx.await_bytes(10);
    assert_eq!(p::events_of(end.fd(), both, 0), both);
    let filled = end.tx.fill();
    assert_eq!(p::events_of(end.fd(), both, 0), POLLIN);
    end.recv(10);
    assert_eq!(p::events_of(end.fd(), both, 20), 0);
    peer.after(10).start("recv", &[filled as u64]);
    assert_eq!(p::events_of(end.fd(), both, 5000), POLLOUT);
    peer.finish();
}

fn at_the_end() {
    let (mut end, mut peer) = link::client(V4);
    let all = POLLIN | POLLOUT | POLLRDHUP;
    peer.after(10).start("shutdown", &[libc::SHUT_WR as u64]);
    assert_eq!(p::events_of(end.fd(), POLLRDHUP, 5000), POLLRDHUP);
    peer.finish();
    assert_eq!(p::events_of(end.fd(), POLLIN, 0), POLLIN, "the end is readable");
    assert_eq!(p::events_of(end.fd(), all, 0), all);
    end.rx.expect_eof();
    peer.reset();
    let broken = libc::POLLHUP | libc::POLLERR;
    crate::sys::cpu::eventually("the reset shows", || p::events_of(end.fd(), 0, 100) == broken);
}

fn too_many() {
    let limit = crate::sys::process::set_limit(libc::RLIMIT_NOFILE, 50);
    assert_eq!(poll(&mut vec![want(-1, 0); 51], 0), Err(EINVAL));
    crate::sys::process::set_limit(libc::RLIMIT_NOFILE, limit);
}

fn every_select(family: crate::sys::net::Family) {
    let (mut end, mut peer) = link::client(family);
    let calls: [(&str, Select); 3] = [
        ("select", |n, sets| select(n, sets, 5000).0),
        ("__select", |n, sets| under_select(n, sets, 5000)),
        ("pselect", |n, sets| pselect(n, sets, 5000, None)),
    ];
    let fresh = |fd| Sets { read: Bits::of(&[fd]), ..Sets::default() };
    for (name, call) in calls {
        peer.after(10).start("send", &[10]);
        let mut sets = fresh(end.fd());
        assert_eq!(call(end.fd() + 1, &mut sets), Ok(1), "{name}");
        assert!(sets.read.has(end.fd()), "{name}");
        peer.finish();
        end.recv(10);
        let mut sets = fresh(end.fd());
        assert_eq!(select(end.fd() + 1, &mut sets, 5).0, Ok(0), "drained");
        assert!(!sets.read.has(end.fd()), "select clears the bits of what is not ready");
    }
}

/// A descriptor that is ready in two sets counts twice.
fn read_and_write() {
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    let sets = || Sets { read: Bits::of(&[fd]), write: Bits::of(&[fd]), except: Bits::of(&[fd]) };
    let look = |ms| {
        let mut sets = sets();
        let n = select(fd + 1, &mut sets, ms).0.expect("select");
        (n, sets.read.has(fd), sets.write.has(fd), sets.except.has(fd))
    };
    assert_eq!(look(1000), (1, false, true, false));
    peer.send(10);
    end.rx.await_bytes(10);
    assert_eq!(look(1000), (2, true, true, false));
    let filled = end.tx.fill();
    assert_eq!(look(1000), (1, true, false, false));
    end.recv(10);
    assert_eq!(look(20), (0, false, false, false));
    peer.recv(filled);
    assert_eq!(look(5000), (1, false, true, false));
}

fn time_left() {
    let (mut end, mut peer) = link::client(V4);
    peer.after(100).start("send", &[1]);
    let mut sets = Sets { read: Bits::of(&[end.fd()]), ..Sets::default() };
    let (ready, left) = select(end.fd() + 1, &mut sets, 10_000);
    assert_eq!(ready, Ok(1));
    assert!((5_000..9_950).contains(&left), "select writes back the time left, not {left} ms");
    peer.finish();
    end.recv(1);
    let (ready, left) = select(end.fd() + 1, &mut sets, 20);
    assert_eq!((ready, left), (Ok(0), 0));
}

/// Beyond FD_SETSIZE, with bitmaps that are large enough, as in several programs.
fn high_numbers() {
    let (mut end, mut peer) = link::client(V4);
    let high = fds::fcntl(end.fd(), libc::F_DUPFD_CLOEXEC, 2000).expect("F_DUPFD") as Fd;
    assert!(high >= 2000);
    end.close();
    end.moved_to(high);
    for _ in 0..3 {
        peer.after(10).start("send", &[10]);
        let mut sets = Sets { read: Bits::of(&[high]), ..Sets::default() };
        assert_eq!(select(high + 1, &mut sets, 5000).0, Ok(1));
        assert!(sets.read.has(high));
        peer.finish();
        end.recv(10);
    }
}

fn closed() {
    let (end, _peer) = link::client(V4);
    let copy = fds::dup(end.fd()).expect("dup") as Fd;
    fds::close(copy).expect("close");
    let mut sets = Sets { read: Bits::of(&[end.fd(), copy]), ..Sets::default() };
    assert_eq!(select(end.fd().max(copy) + 1, &mut sets, 10).0, Err(EBADF));
}

fn end_is_readable() {
    let (mut end, mut peer) = link::client(V4);
    peer.after(10).start("close", &[]);
    let mut sets = Sets { read: Bits::of(&[end.fd()]), ..Sets::default() };
    assert_eq!(select(end.fd() + 1, &mut sets, 5000).0, Ok(1));
    peer.finish();
    end.rx.expect_eof();
}

/// Both ends of a connection that has ended, so that poll(2) reports a hang-up, and of one that lives.
fn ended_and_living() -> ((End, End), (End, End)) {
    let pair = |number| link::numbered_pair(V4, number);
    let (ended, living) = (pair(0), pair(1));
    for end in [&ended.0, &ended.1] {
        net::shutdown(end.fd(), libc::SHUT_RDWR).expect("shutdown");
    }
    assert_eq!(p::events_of(ended.0.fd(), 0, 5000), POLLHUP);
    (ended, living)
}

/// select(2) watches the descriptor for exceptional conditions only: it waits on, without using processor time.
fn hang_up() {
    let ((dead, _other), _living) = ended_and_living();
    let calls: [fn(Fd, &mut Sets) -> Outcome; 2] = [|n, s| select(n, s, 200).0, |n, s| pselect(n, s, 200, None)];
    for call in calls {
        let mut sets = Sets { except: Bits::of(&[dead.fd()]), ..Sets::default() };
        let (clock, cpu) = measure(|| assert_eq!(call(dead.fd() + 1, &mut sets), Ok(0)));
        assert!((200..1200).contains(&clock.as_millis()), "a wait of 200 ms took {clock:?}");
        assert!(cpu < Duration::from_millis(50), "it was busy for {cpu:?}");
        assert!(!sets.except.has(dead.fd()));
        let mut sets = Sets { except: Bits::of(&[dead.fd()]), ..Sets::default() };
        assert_eq!(select(dead.fd() + 1, &mut sets, 0), (Ok(0), 0));
    }
}

/// Events that the wait asks for end it: bytes, urgent data, and a further hang-up where that counts.
fn beside_a_hang_up() {
    let ((dead, _other), (mut end, mut peer)) = ended_and_living();
    let limit = end.fd().max(dead.fd()) + 1;
    let wait = |sets: &mut Sets, event: &mut (dyn FnMut() + Send)| {
        std::thread::scope(|s| {
            let waits = s.spawn(|| select(limit, sets, 10_000));
            crate::sys::cpu::sleep_ms(100);
            event();
            waits.join().expect("the wait")
        })
    };
    let both = |fd| Sets { read: Bits::of(&[fd]), except: Bits::of(&[dead.fd(), fd]), ..Sets::default() };
    for _ in 0..3 {
        let mut sets = both(end.fd());
        let (ready, left) = wait(&mut sets, &mut || peer.send(10));
        assert_eq!(ready, Ok(1));
        assert!((5_000..9_950).contains(&left), "the time left is told, not {left} ms");
        assert!(sets.read.has(end.fd()) && !sets.except.has(dead.fd()) && !sets.except.has(end.fd()));
        end.recv(10);
    }
    let mut sets = Sets { except: Bits::of(&[dead.fd(), end.fd()]), ..Sets::default() };
    let urgent = wait(&mut sets, &mut || assert_eq!(io::send(peer.fd(), b"!", libc::MSG_OOB), Ok(1)));
    assert_eq!(urgent.0, Ok(1));
    assert!(sets.except.has(end.fd()) && !sets.except.has(dead.fd()));
    assert_eq!(io::recv(end.fd(), &mut [0], libc::MSG_OOB), Ok(1));
    let mut sets = both(end.fd());
    assert_eq!(wait(&mut sets, &mut || peer.close()).0, Ok(1));
    assert!(sets.read.has(end.fd()));
}

/// The mask of pselect(2) holds during the whole wait.
fn signal_beside_a_hang_up() {
    let ((dead, _other), _living) = ended_and_living();
    signal::count_signal(SIGALRM, SA_RESTART);
    signal::block(&[SIGALRM]);
    signal::alarm_ms(100, 0);
    let mut sets = Sets { except: Bits::of(&[dead.fd()]), ..Sets::default() };
    let (clock, _) = measure(|| {
        let result = pselect(dead.fd() + 1, &mut sets, 10_000, Some(&signal::set_of(&[])));
        assert_eq!(result, Err(EINTR));
    });
    assert_eq!(signal::count(SIGALRM), 1);
    assert!((50..5_000).contains(&clock.as_millis()), "interrupted after {clock:?}");
    // SAFETY: raises a signal that has a handler.
    assert_eq!(unsafe { libc::raise(SIGALRM) }, 0);
    assert_eq!(pselect(dead.fd() + 1, &mut sets, 0, Some(&signal::set_of(&[]))), Err(EINTR));
    assert_eq!(signal::count(SIGALRM), 2);
}

fn bits_cleared() {
    let (mut end, mut peer) = link::client(V4);
    let pipe = fds::pipe(libc::O_CLOEXEC);
    let limit = end.fd().max(pipe.0) + 1;
    let look = || {
        let mut sets = Sets { read: Bits::of(&[end.fd(), pipe.0]), ..Sets::default() };
        let n = select(limit, &mut sets, 1000).0.expect("select");
        (n, sets.read.has(end.fd()), sets.read.has(pipe.0))
    };
    peer.send(1);
    assert_eq!(look(), (1, true, false));
    io::write(pipe.1, b"x").expect("write to the pipe");
    assert_eq!(look(), (2, true, true));
    end.recv(1);
    assert_eq!(
        {
            let mut sets = Sets { read: Bits::of(&[end.fd(), pipe.0]), ..Sets::default() };
            (select(limit, &mut sets, 1000).0, sets.read.has(end.fd()), sets.read.has(pipe.0))
        },
        (Ok(1), false, true)
    );
}
