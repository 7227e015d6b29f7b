//! Epoll sets inside epoll sets, and in poll(2) and select(2).

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD};

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::epoll::{ET, Epoll, HUP, IN, ONESHOT, OUT, RDHUP};
use crate::sys::errno::{EAGAIN, ELOOP};
use crate::sys::net::Family::V4;
use crate::sys::threads::blocked;
use crate::sys::{fds, io, net, poll, select};

pub const CASES: &[Case] = &[
    case("sets.writer_sleeps_in_an_outer_set", writer_in_outer).bulk(),
    case("sets.writer_sleeps_in_poll_beside_other_connections", writer_in_poll).bulk(),
    case("sets.writer_in_a_watched_set_with_little_kernel_space", || little_space(false)).bulk(),
    case("sets.writer_in_a_watched_set_asks_for_less", || little_space(true)).bulk(),
    case("sets.set_inside_a_set", nested),
    case("sets.set_inside_a_set_edge", nested_edge),
    case("sets.set_inside_a_set_tells_what_was_asked_for", nested_asks).reason("urgent"),
    case("sets.nested_as_deep_as_the_kernel_allows", nested_to_the_limit).reason("places"),
    case("sets.inner_set_is_armed_beside_a_sleeper", armed_inside),
    case("sets.set_inside_poll_and_select", set_in_poll),
    case("sets.inner_set_of_an_ended_connection", ended_inside),
    case("sets.no_circles", no_circles),
];

fn nested() {
    let (mut end, mut peer) = link::client(V4);
    let (inner, middle, outer) = (Epoll::new(), Epoll::new(), Epoll::new());
    inner.add(end.fd(), IN);
    middle.add(inner.fd, IN);
    outer.add(middle.fd, IN);
    for _ in 0..5 {
        assert_eq!(outer.wait(5), []);
        peer.start("send", &[10]);
        assert_eq!(outer.mask_of(middle.fd, 3000), IN);
        assert_eq!(middle.mask_of(inner.fd, 0), IN);
        assert_eq!(inner.mask_of(end.fd(), 0), IN);
        peer.finish();
        end.recv(10);
        assert_eq!(outer.wait(0), [], "drained");
    }
}

/// A doorbell is a set, too, and must not use up the last level of nesting.
fn nested_to_the_limit() {
    let (mut end, mut peer) = link::client(V4);
    let inner = Epoll::new();
    inner.add(end.fd(), IN);
    peer.send(10);
    assert_eq!(inner.mask_of(end.fd(), 3000), IN);
    end.recv(10);
    let mut outer = inner;
    for level in 2..=5 {
        let next = Epoll::new();
        assert_eq!(next.control(EPOLL_CTL_ADD, outer.fd, IN, outer.fd as u64), Ok(0), "level {level}");
        outer = next;
    }
    assert_eq!(Epoll::new().control(EPOLL_CTL_ADD, outer.fd, IN, 0), Err(ELOOP));
    for _ in 0..5 {
        peer.start("send", &[10]);
        assert_eq!(outer.wait(3000).len(), 1);
        assert_eq!(inner.mask_of(end.fd(), 3000), IN);
        peer.finish();
        end.recv(10);
        assert_eq!(outer.wait(0), [], "drained");
    }
}

fn nested_edge() {
    let (mut end, mut peer) = link::client(V4);
    let (inner, outer) = (Epoll::new(), Epoll::new());
    inner.add(end.fd(), IN | ET);
    outer.add(inner.fd, IN | ET);
    for round in 0..5 {
        peer.send(10);
        assert_eq!(outer.mask_of(inner.fd, 3000), IN, "round {round}");
        assert_eq!(inner.mask_of(end.fd(), 0), IN, "round {round}");
        assert_eq!(inner.wait(5), []);
        assert_eq!(outer.wait(5), []);
    }
    end.recv(50);
}

/// A thread sleeps in the outer set while another one rearms a readable socket in the inner set.
fn armed_inside() {
    let (mut end, mut peer) = link::client(V4);
    let (inner, outer) = (Epoll::new(), Epoll::new());
    inner.control(EPOLL_CTL_ADD, end.fd(), IN | ONESHOT, 1).expect("add");
    outer.add(inner.fd, IN);
    peer.send(10);
    for _ in 0..20 {
        assert_eq!(outer.mask_of(inner.fd, 3000), IN);
        assert_eq!(inner.wait(0), [(IN, 1)]);
        let sleeper = blocked(move || outer.wait(3000));
        inner.control(EPOLL_CTL_MOD, end.fd(), IN | ONESHOT, 1).expect("arm again");
        assert_eq!(sleeper.join(), [(IN, inner.fd as u64)]);
    }
    end.recv(10);
}

fn set_in_poll() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN);
    for _ in 0..5 {
        assert_eq!(poll::events_of(set.fd, libc::POLLIN, 5), 0);
        peer.start("send", &[10]);
        assert_eq!(poll::events_of(set.fd, libc::POLLIN, 3000), libc::POLLIN);
        let mut sets = select::Sets { read: select::Bits::of(&[set.fd]), ..Default::default() };
        assert_eq!(select::select(set.fd + 1, &mut sets, 3000).0, Ok(1));
        assert_eq!(set.mask_of(end.fd(), 0), IN);
        peer.finish();
        end.recv(10);
        peer.after(10).start("send", &[10]);
        let mut sets = select::Sets { read: select::Bits::of(&[set.fd]), ..Default::default() };
        assert_eq!(select::select(set.fd + 1, &mut sets, 3000).0, Ok(1), "select sleeps on the set");
        peer.finish();
        end.recv(10);
    }
}

/// The peer ends its side. A registration for errors only has nothing to tell, so its set is not readable.
fn ended_inside() {
    let (mut end, mut other) = link::own_pair(V4);
    let (inner, outer) = (Epoll::new(), Epoll::new());
    outer.add(inner.fd, IN);
    assert_eq!((outer.wait(0), inner.wait(0)), (vec![], vec![]));
    other.send(100);
    net::shutdown(other.fd(), libc::SHUT_WR).expect("shutdown");
    poll::events_of(end.fd(), libc::POLLRDHUP, 3000);
    inner.control(EPOLL_CTL_ADD, end.fd(), ET, 7).expect("add");
    assert_eq!(outer.wait(5), []);
    end.recv(100);
    end.rx.expect_eof();
    assert_eq!(outer.wait(5), []);
    assert_eq!(inner.wait(0), []);
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    assert_eq!(outer.mask_of(inner.fd, 3000), IN);
    assert_eq!(inner.wait(0), [(HUP, 7)]);
    assert_eq!(outer.wait(5), []);
}

fn no_circles() {
    let (end, _peer) = link::client(V4);
    let (a, b) = (Epoll::new(), Epoll::new());
    a.add(end.fd(), IN);
    a.add(b.fd, IN);
    assert_eq!(b.control(libc::EPOLL_CTL_ADD, a.fd, IN, 0), Err(ELOOP));
}

/// Urgent data is no event for a registration for the end only, so the set is not readable.
fn nested_asks() {
    let (mut end, mut peer) = link::client(V4);
    let (inner, outer) = (Epoll::new(), Epoll::new());
    assert_eq!(inner.wait(0), []);
    inner.add(end.fd(), RDHUP);
    outer.add(inner.fd, IN);
    peer.send(100);
    assert_eq!(outer.wait(30), [], "bytes");
    peer.call("urgent", &[1]);
    assert_eq!(outer.wait(30), [], "urgent data");
    end.recv(100);
    peer.shutdown(libc::SHUT_WR);
    assert_eq!(outer.mask_of(inner.fd, 3000), IN, "the end");
}

/// The reader reads nothing until all bytes are written: they fit into the kernel's buffers.
fn writer_in_outer() {
    let (mut end, mut other) = link::own_pair(V4);
    fds::set_nonblocking(end.fd(), true);
    let (inner, outer) = (Epoll::new(), Epoll::new());
    inner.add(end.fd(), OUT);
    outer.add(inner.fd, IN);
    for _ in 0..20 {
        assert_eq!(inner.mask_of(end.fd(), 0), OUT);
        end.send(10);
        other.recv(10);
    }
    send_all(&mut end, &mut other, || outer.mask_of(inner.fd, 5000) == IN);
}

/// `other` reads nothing until all bytes are written. `is_told`: waits for space.
fn send_all(end: &mut End, other: &mut End, is_told: impl Fn() -> bool) {
    const ALL: usize = 1 << 20;
    let mut sent = 0;
    while sent < ALL {
        match end.tx.try_send(10_000, io::write) {
            Ok(n) => sent += n,
            Err(EAGAIN) => assert!(is_told(), "after {sent} bytes"),
            Err(e) => panic!("{e:?}"),
        }
    }
    other.recv(sent);
}

/// As [`writer_in_outer`], in poll(2) with another connection, of few bytes and of many.
fn writer_in_poll() {
    let (few, _) = link::cold_pair_ends(V4, 1);
    let (many, _) = link::numbered_pair(V4, 2);
    for (number, beside) in [(3, few.fd()), (4, many.fd())] {
        let (mut end, mut other) = link::numbered_pair(V4, number);
        fds::set_nonblocking(end.fd(), true);
        let inner = Epoll::new();
        inner.add(end.fd(), OUT);
        let is_readable = || {
            let mut list = [beside, inner.fd].map(|fd| poll::want(fd, libc::POLLIN));
            poll::poll(&mut list, 5000) == Ok(1) && list[1].revents == libc::POLLIN
        };
        for _ in 0..20 {
            assert!(is_readable());
            assert_eq!(inner.mask_of(end.fd(), 0), OUT);
            end.send(10);
            other.recv(10);
        }
        send_all(&mut end, &mut other, is_readable);
    }
}

/// One write for each time that the outer set says that there is space, with pieces of any size and a small send buffer: also
/// where the kernel carries, and a write has filled its buffer without EAGAIN. `narrows`: the writer waits for bytes, too, until a
/// moment before.
fn little_space(narrows: bool) {
    const TOTAL: u64 = 2_000_000;
    let mut rng = crate::rng::Rng::new(crate::rng::run_seed());
    for round in 0..12 {
        let (mut end, mut peer) = link::client(V4);
        net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &16_384).expect("SO_SNDBUF");
        fds::set_nonblocking(end.fd(), true);
        let (inner, outer) = (Epoll::new(), Epoll::new());
        inner.add(end.fd(), OUT);
        outer.add(inner.fd, IN);
        peer.start("mixed", &[0, TOTAL, 5000, round]);
        let goal = end.tx.at + TOTAL;
        while end.tx.at < goal {
            if narrows {
                inner.modify(end.fd(), IN | OUT);
                outer.wait(0);
                inner.modify(end.fd(), OUT);
            }
            assert_eq!(outer.mask_of(inner.fd, 3000), IN, "round {round}, {} bytes left", goal - end.tx.at);
            if inner.wait(0).is_empty() {
                continue;
            }
            let n = (1 + rng.below(5000)).min(goal - end.tx.at) as usize;
            match end.tx.try_send(n, io::write) {
                Ok(_) | Err(EAGAIN) => {}
                Err(e) => panic!("round {round}: {e:?}"),
            }
        }
        peer.finish();
    }
}
