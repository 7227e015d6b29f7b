//! Members of epoll sets: several sets, early registration, closed and reused descriptors, duplicated descriptors.

use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK};

use crate::carried::Awaited;
use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::sys::cpu::eventually;
use crate::sys::epoll::{ET, Epoll, HUP, IN, OUT};
use crate::sys::errno::{EEXIST, EINPROGRESS};
use crate::sys::net::Family::V4;
use crate::sys::process::in_child;
use crate::sys::threads::asleep;
use crate::sys::{Fd, fds, io, net};

pub const CASES: &[Case] = &[
    case("sets.one_socket_in_two_sets", two_sets),
    case("sets.same_socket_level_and_edge", level_and_edge),
    case("sets.registered_before_connect", || before_connect(IN | OUT)),
    case("sets.registered_before_connect_edge", || before_connect(IN | OUT | ET)),
    case("sets.registered_before_warm_up", registered_early),
    case("sets.closed_number_is_forgotten", closed_number),
    case("sets.reused_number_is_a_new_member", reused_number),
    case("sets.copy_keeps_the_registration", copy_keeps).reason("dup"),
    case("sets.copies_are_members_of_their_own", copies_are_members),
    case("sets.copied_set_is_the_same_set", copied_set),
    case("sets.closed_set_number_is_reused", set_number_reused),
    case("sets.set_is_shared_with_a_forked_child", shared_with_child),
    case("sets.registered_anew_for_each_message", registered_anew),
    case("sets.hundred_connections_in_one_set", hundred).bulk(),
];

fn two_sets() {
    let (mut end, mut peer) = link::client(V4);
    let sets = [Epoll::new(), Epoll::new()];
    sets.iter().for_each(|set| set.add(end.fd(), IN));
    for _ in 0..5 {
        peer.send(20);
        for set in sets {
            assert_eq!(set.mask_of(end.fd(), 2000), IN, "both sets know of it");
        }
        end.recv(20);
        for set in sets {
            assert_eq!(set.wait(0), []);
        }
    }
    sets[0].delete(end.fd());
    peer.send(20);
    assert_eq!(sets[1].mask_of(end.fd(), 2000), IN);
    assert_eq!(sets[0].wait(0), []);
    end.recv(20);
}

/// As in a Java server: its poller removes a connection from the set while a worker reads and writes.
fn registered_anew() {
    let (mut client, mut server) = link::cold_pair_ends(V4, 0);
    fds::set_nonblocking(server.fd(), true);
    let set = Epoll::new();
    let awaited = Awaited::of(&[client.fd(), server.fd()]);
    for _ in 0..link::WARM_ROUNDS {
        set.add(server.fd(), IN);
        client.send(link::WARM_BYTES);
        assert_eq!(set.mask_of(server.fd(), 2000), IN);
        set.delete(server.fd());
        server.recv(link::WARM_BYTES);
        server.send(link::WARM_BYTES);
        client.recv(link::WARM_BYTES);
        awaited.rest();
    }
}

fn level_and_edge() {
    let (mut end, mut peer) = link::client(V4);
    let (level, edge) = (Epoll::new(), Epoll::new());
    level.add(end.fd(), IN);
    edge.add(end.fd(), IN | ET);
    peer.send(20);
    for set in [level, edge] {
        assert_eq!(set.mask_of(end.fd(), 2000), IN);
    }
    assert_eq!(level.mask_of(end.fd(), 0), IN);
    assert_eq!(edge.wait(10), []);
    end.recv(20);
    assert_eq!(level.wait(0), []);
}

/// As in Envoy: add first, connect then, never change the registration.
fn before_connect(mask: u32) {
    let listener = Listener::new(V4);
    let fd = net::socket(V4, SOCK_NONBLOCK | SOCK_CLOEXEC);
    let set = Epoll::new();
    set.add(fd, mask);
    assert_eq!(set.mask_of(fd, 0), OUT | HUP, "not connected yet");
    assert_eq!(net::connect(fd, &listener.addr()), Err(EINPROGRESS));
    let mut end = End::new(fd, Side::Client);
    let mut other = End::new(listener.accept(), Side::Server);
    eventually("connected", || set.mask_of(fd, 100) == OUT);
    assert_eq!(net::take_error(fd), 0);
    for _ in 0..2 {
        link::warm_up_pair(&mut end, &mut other);
        while mask & ET != 0 && !set.wait(0).is_empty() {}
        other.send(100);
        end.rx.await_bytes(100);
        assert_ne!(set.mask_of(fd, 2000) & IN, 0, "the early registration sees the data");
        end.recv(100);
    }
}

/// Added before the connection has carried a byte; events must continue after the upgrade.
fn registered_early() {
    let (mut end, mut peer) = link::cold_client(V4, crate::peer::Preload::Kept);
    let (level, edge) = (Epoll::new(), Epoll::new());
    level.add(end.fd(), IN);
    edge.add(end.fd(), IN | ET);
    net::set_nodelay(end.fd());
    for _ in 0..2 {
        peer.start("echo", &[200, 50]);
        for round in 0..200 {
            end.send(50);
            assert_eq!(level.mask_of(end.fd(), 3000), IN, "round {round}");
            assert_eq!(edge.mask_of(end.fd(), 3000), IN, "round {round}");
            end.recv(50);
        }
        peer.finish();
    }
}

fn closed_number() {
    let (end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN | OUT);
    assert_eq!(set.mask_of(end.fd(), 0), OUT);
    peer.send(10);
    end.rx.await_bytes(10);
    end.close();
    assert_eq!(set.wait(20), [], "closing takes it out of the set");
}

/// A reused number must be added again, and no event of the old connection may appear.
fn reused_number() {
    let set = Epoll::new();
    let (first, mut old_peer) = link::client(V4);
    let number = first.fd();
    set.control(libc::EPOLL_CTL_ADD, number, IN | ET, 1).expect("add");
    old_peer.send(10);
    first.rx.await_bytes(10);
    first.close();
    let (mut a, mut b) = link::numbered_pair(V4, 3);
    let moved = fds::dup2(a.fd(), number).expect("dup2") as Fd;
    a.close();
    a.moved_to(moved);
    b.send(5);
    a.rx.await_bytes(5);
    assert_eq!(set.wait(20), [], "the new connection was not added");
    assert_eq!(set.control(libc::EPOLL_CTL_ADD, number, IN, 2), Ok(0));
    assert_eq!(set.wait(2000), [(IN, 2)]);
    assert_eq!(set.control(libc::EPOLL_CTL_ADD, number, IN, 2), Err(EEXIST));
    a.recv(5);
    assert_eq!(set.wait(10), []);
}

/// The set holds the open file description: while a duplicate lives, closing the descriptor changes nothing.
fn copy_keeps() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.control(libc::EPOLL_CTL_ADD, end.fd(), IN, 77).expect("add");
    let copy = fds::dup(end.fd()).expect("dup") as Fd;
    end.close();
    end.moved_to(copy);
    peer.send(10);
    assert_eq!(set.wait(2000), [(IN, 77)], "reported under the old data");
    end.recv(10);
    end.close();
    assert_eq!(set.wait(20), []);
}

fn copies_are_members() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    let copy = fds::dup(end.fd()).expect("dup") as Fd;
    set.control(libc::EPOLL_CTL_ADD, end.fd(), IN, 1).expect("add");
    set.control(libc::EPOLL_CTL_ADD, copy, IN, 2).expect("a copy is a member of its own");
    peer.send(10);
    end.rx.await_bytes(10);
    let mut events = set.wait(2000);
    events.sort();
    assert_eq!(events, [(IN, 1), (IN, 2)]);
    set.delete(copy);
    assert_eq!(set.wait(0), [(IN, 1)]);
    end.recv(10);
}

fn copied_set() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    let copy = Epoll { fd: fds::dup(set.fd).expect("dup") as Fd };
    copy.add(end.fd(), IN);
    peer.send(10);
    assert_eq!(set.mask_of(end.fd(), 2000), IN);
    fds::close(set.fd).expect("close");
    assert_eq!(copy.mask_of(end.fd(), 0), IN, "a copy of the set lives on");
    end.recv(10);
    assert_eq!(copy.wait(10), []);
}

/// A new set under an old set's number has none of the old members.
fn set_number_reused() {
    let (mut end, mut peer) = link::client(V4);
    let old = Epoll::new();
    old.add(end.fd(), IN);
    fds::close(old.fd).expect("close");
    let new = Epoll::new();
    assert_eq!(new.fd, old.fd, "the lowest free number");
    peer.send(10);
    end.rx.await_bytes(10);
    assert_eq!(new.wait(20), []);
    new.add(end.fd(), IN);
    assert_eq!(new.mask_of(end.fd(), 0), IN);
    end.recv(10);
}

/// Child and parent wait on the same set.
fn shared_with_child() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN);
    peer.send(10);
    let fd = end.fd();
    in_child(|| assert_eq!(set.mask_of(fd, 2000), IN)).succeed();
    assert_eq!(set.mask_of(end.fd(), 2000), IN, "nobody has read yet");
    let waiter = in_child(|| {
        end.recv(10);
        assert_eq!(set.mask_of(fd, 5000), IN);
    });
    eventually("the child sleeps", || asleep(waiter.pid));
    peer.send(10);
    waiter.succeed();
    end.rx.skipped(10);
    end.recv(10);
}

fn hundred() {
    const EACH: u64 = 40;
    let set = Epoll::new();
    let mut pairs: Vec<_> = (0..100).map(|i| link::numbered_pair(V4, i)).collect();
    for (i, (a, _)) in pairs.iter().enumerate() {
        set.control(libc::EPOLL_CTL_ADD, a.fd(), IN, i as u64).expect("add");
    }
    let mut rng = crate::rng::Rng::new(crate::rng::run_seed());
    let mut left: Vec<u64> = (0..100u64).flat_map(|i| std::iter::repeat_n(i, EACH as usize)).collect();
    while !left.is_empty() {
        let writers: Vec<u64> =
            (0..left.len().min(20)).map(|_| left.swap_remove(rng.below(left.len() as u64) as usize)).collect();
        writers.iter().for_each(|&i| pairs[i as usize].1.send(200));
        let mut due = writers.len() * 200;
        while due > 0 {
            for (mask, i) in set.wait(3000) {
                assert_eq!(mask, IN);
                due -= pairs[i as usize].0.rx.try_recv(1000, io::read).expect("readable");
            }
        }
    }
    assert_eq!(set.wait(0), []);
}
