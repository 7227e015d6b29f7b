//! The order of events in epoll_wait(2), and what it leaves unchanged: the program's memory, the program's data.

use std::fmt::Write;

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::epoll::{ET, Epoll, IN, ONESHOT};
use crate::sys::errno::EFAULT;
use crate::sys::net::Family::V4;
use crate::sys::{Fd, bad, bare, fds, net};

pub const CASES: &[Case] = &[
    case("epoll_order.is_that_of_arrival", || of_arrival(IN)),
    case("epoll_order.is_that_of_arrival_by_edge", || of_arrival(IN | ET)),
    case("epoll_order.a_ring_between_two_pipes", between_pipes),
    case("epoll_order.what_is_left_over_comes_first", little_room),
    case("epoll_memory.is_written_as_far_as_events_go", untouched),
    case("epoll_memory.that_is_bad_loses_no_event", bad_memory),
    case("epoll_data.that_collides_with_tags", collision).reason("foreign"),
    case("epoll_sets.more_than_there_are_doorbells", many_sets).reason("places"),
    case("epoll_sets.waited_for_past_libc", past_libc),
    case("epoll_sets.first_waited_for_later", waited_for_later),
    case("epoll_oneshot.stays_silent_on_the_kernel", silent_oneshot).reason("socket-option"),
];

/// Upgraded connections of this process; the first ends are watched.
fn pairs(n: usize) -> Vec<(End, End)> {
    (0..n).map(|i| link::numbered_pair(V4, i as u64)).collect()
}

/// A set with the first ends in it, by index. A wait for it has been made.
fn set_of(pairs: &mut [(End, End)], mask: u32) -> Epoll {
    let set = Epoll::new();
    assert_eq!(set.wait(0), []);
    for (i, (end, _)) in pairs.iter().enumerate() {
        set.control(libc::EPOLL_CTL_ADD, end.fd(), mask, i as u64).expect("add");
    }
    // Until the peers have the doorbells.
    for _ in 0..5 {
        for (i, (end, peer)) in pairs.iter_mut().enumerate() {
            peer.send(100);
            assert_eq!(told(set), [i]);
            end.recv(100);
            set.control(libc::EPOLL_CTL_MOD, end.fd(), mask, i as u64).expect("mod");
        }
    }
    set.wait(0);
    set
}

/// Indices of the reported events, in order.
fn told(set: Epoll) -> Vec<usize> {
    set.wait(1000).iter().map(|(_, i)| *i as usize).collect()
}

/// 100 bytes arrive at the first end. Between two hosts that takes a moment.
fn arrive((end, other): &mut (End, End)) {
    other.send(100);
    end.rx.await_bytes(100);
}

/// Some permutations of `n`.
fn orders(n: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut rng = crate::rng::Rng::new(n as u64);
    (0..20).map(move |_| {
        let mut rest: Vec<_> = (0..n).collect();
        (0..n).map(|_| rest.remove(rng.below(rest.len() as u64) as usize)).collect()
    })
}

/// Whether carriers change during the test: then the kernel determines the place of some events, and rings that of others.
fn is_mixed() -> bool {
    std::env::var_os("SIDESTEP_FLIP").is_some()
}

/// The expected order, if both have the same members.
fn by_members(expected: &[usize], found: Vec<usize>) -> Vec<usize> {
    let (mut a, mut b) = (expected.to_vec(), found.clone());
    a.sort_unstable();
    b.sort_unstable();
    if a == b { expected.to_vec() } else { found }
}

fn of_arrival(mask: u32) {
    let mut pairs = pairs(5);
    let set = set_of(&mut pairs, mask);
    for order in orders(5) {
        for i in &order {
            arrive(&mut pairs[*i]);
        }
        let mut found = told(set);
        if is_mixed() {
            found = by_members(&order, found);
        }
        assert_eq!(found, order);
        if mask & ET == 0 {
            let again = told(set);
            let again = if is_mixed() { by_members(&order, again) } else { again };
            assert_eq!(again, order, "what is still ready keeps its order");
        }
        for i in &order {
            pairs[*i].0.recv(100);
        }
        assert_eq!(set.wait(0), []);
    }
}

fn between_pipes() {
    let mut pairs = pairs(1);
    let set = set_of(&mut pairs, IN);
    let pipes = [fds::pipe(0), fds::pipe(0)];
    for (i, (out, _)) in pipes.iter().enumerate() {
        set.control(libc::EPOLL_CTL_ADD, *out, IN, 1 + i as u64).expect("add");
    }
    for order in [[1, 0, 2], [0, 1, 2], [2, 1, 0], [2, 0, 1], [1, 2, 0], [0, 2, 1]] {
        set.wait(0);
        for i in order {
            match i {
                0 => arrive(&mut pairs[0]),
                i => assert_eq!(bare::write(pipes[i - 1].1, b"x"), 1),
            }
        }
        assert_eq!(told(set), order);
        pairs[0].0.recv(100);
        for (out, _) in pipes {
            assert_eq!(bare::read(out, &mut [0]), 1);
        }
    }
}

fn little_room() {
    let mut pairs = pairs(5);
    let set = set_of(&mut pairs, IN);
    for i in [3, 1, 4, 0, 2] {
        arrive(&mut pairs[i]);
    }
    let next = || set.try_wait(2, 1000).expect("wait").iter().map(|(_, i)| *i).collect::<Vec<_>>();
    let rounds: Vec<_> = (0..5).map(|_| next()).collect();
    if is_mixed() {
        let all: std::collections::BTreeSet<_> = rounds.iter().flatten().collect();
        assert_eq!(all.len(), 5, "{rounds:?}");
    } else {
        assert_eq!(rounds, [[3, 1], [4, 0], [2, 3], [1, 4], [0, 2]]);
    }
    for (end, _) in &mut pairs {
        end.recv(100);
    }
}

/// Events of the library's own registrations must not reach the program.
fn untouched() {
    const PATTERN: u64 = 0x5a5a_a5a5_1234_4321;
    let mut pairs = pairs(3);
    let set = set_of(&mut pairs, IN);
    let (out, into) = fds::pipe(0);
    set.control(libc::EPOLL_CTL_ADD, out, IN, 77).expect("add");
    for round in 0..20 {
        arrive(&mut pairs[round % 3]);
        if round % 2 == 0 {
            assert_eq!(bare::write(into, b"x"), 1);
        }
        let mut events = [libc::epoll_event { events: !0, u64: PATTERN }; 16];
        // SAFETY: room for so many events.
        let n = unsafe { libc::epoll_wait(set.fd, events.as_mut_ptr(), 16, 1000) } as usize;
        assert_eq!(n, 1 + usize::from(round % 2 == 0));
        assert!(events[n..].iter().all(|e| (e.events, e.u64) == (!0, PATTERN)), "round {round}");
        pairs[round % 3].0.recv(100);
        if round % 2 == 0 {
            assert_eq!(bare::read(out, &mut [0]), 1);
        }
    }
}

fn bad_memory() {
    let mut pairs = pairs(1);
    for mask in [IN, IN | ET, IN | ONESHOT] {
        let set = set_of(&mut pairs, mask);
        let (out, into) = fds::pipe(0);
        set.control(libc::EPOLL_CTL_ADD, out, mask, 1).expect("add");
        arrive(&mut pairs[0]);
        assert_eq!(bare::write(into, b"x"), 1);
        // SAFETY: nothing is mapped there, and the kernel says so.
        let wait = || unsafe { libc::epoll_wait(set.fd, bad::nowhere(), 8, 1000) };
        assert_eq!(crate::sys::errno::outcome(wait()), Err(EFAULT));
        let mut after = told(set);
        after.sort_unstable();
        assert_eq!(after, [0, 1], "mask {mask:#x}");
        pairs[0].0.recv(100);
        for fd in [out, into, set.fd] {
            fds::close(fd).expect("close");
        }
    }
}

/// A program may choose the same data as any that the kernel shows for the members of a set.
fn collision() {
    let mut pairs = pairs(1);
    let set = set_of(&mut pairs, IN);
    let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", set.fd)).expect("fdinfo");
    let all: Vec<u64> = shown
        .lines()
        .filter_map(|line| line.split("data:").nth(1)?.split_whitespace().next())
        .map(|hex| u64::from_str_radix(hex, 16).expect("a number"))
        .collect();
    assert!(!all.is_empty(), "{shown}");
    let pipes: Vec<(Fd, Fd)> = all.iter().map(|_| fds::pipe(0)).collect();
    for (data, (out, _)) in all.iter().zip(&pipes) {
        set.control(libc::EPOLL_CTL_ADD, *out, IN, *data).expect("add");
    }
    for (data, (out, into)) in all.iter().zip(&pipes) {
        assert_eq!(bare::write(*into, b"x"), 1);
        assert_eq!(set.wait(1000), [(IN, *data)]);
        assert_eq!(bare::read(*out, &mut [0]), 1);
    }
    for _ in 0..5 {
        pairs[0].1.send(100);
        assert_eq!(set.wait(1000), [(IN, 0)]);
        pairs[0].0.recv(100);
    }
}

fn many_sets() {
    const SETS: usize = 80;
    let mut pairs = pairs(1);
    let (mut end, mut peer) = pairs.pop().expect("one");
    let sets: Vec<_> = (0..SETS)
        .map(|_| {
            let set = Epoll::new();
            set.wait(0);
            set.add(end.fd(), IN);
            set
        })
        .collect();
    for _ in 0..3 {
        peer.send(100);
        for set in &sets {
            assert_eq!(set.wait(1000), [(IN, end.fd() as u64)]);
        }
        end.recv(100);
        for set in &sets {
            assert_eq!(set.wait(0), []);
        }
    }
}

/// Registered through libc; waited for by a bare system call.
fn past_libc() {
    let (mut client, mut server) = link::own_pair(V4);
    assert_eq!(Epoll::new().wait(0), [], "other sets are waited for by libc");
    for set in [Epoll::new(), Epoll::new()] {
        set.add(client.fd(), IN);
        for _ in 0..5 {
            server.send(100);
            assert_eq!(bare::epoll_wait(set.fd, 2000), [(IN, client.fd() as u64)]);
            client.recv(100);
        }
        set.delete(client.fd());
    }
}

/// A set whose first wait comes after its members were added and had events.
fn waited_for_later() {
    for mask in [IN, IN | ET, IN | ONESHOT] {
        let (mut client, mut server) = link::own_pair(V4);
        let set = Epoll::new();
        set.add(client.fd(), mask);
        server.send(100);
        assert_eq!(set.wait(1000), [(IN, client.fd() as u64)]);
        client.recv(100);
        set.modify(client.fd(), mask);
        let mut said = String::new();
        for _ in 0..400 {
            server.send(100);
            let events = set.wait(1000);
            write!(said, "{events:?} ").expect("a string");
            assert_eq!(events.len(), 1, "{said}");
            client.recv(100);
            set.modify(client.fd(), mask);
        }
    }
}

/// A one-shot registration that has fired reports nothing, not even an end, until it is rearmed.
fn silent_oneshot() {
    let mut pairs = pairs(1);
    let set = set_of(&mut pairs, IN | ONESHOT);
    let (end, mut peer) = pairs.pop().expect("one");
    peer.send(100);
    assert_eq!(told(set), [0]);
    net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, &1).expect("setsockopt");
    peer.close();
    assert_eq!(set.wait(200), []);
    set.control(libc::EPOLL_CTL_MOD, end.fd(), IN | ONESHOT, 5).expect("arm");
    assert_eq!(set.wait(1000).iter().map(|(_, data)| *data).collect::<Vec<_>>(), [5]);
}
