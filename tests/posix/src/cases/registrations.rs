//! Registrations in epoll sets whose descriptor, connection or carrier changes.

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::epoll::{EXCLUSIVE, Epoll, IN, ONESHOT};
use crate::sys::errno::{EEXIST, ENOENT};
use crate::sys::net::Family::V4;
use crate::sys::process::in_child;
use crate::sys::{Fd, fds, io, net};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};

pub const CASES: &[Case] = &[
    case("registrations.number_of_a_removed_copy_is_a_pipe", removed_copy_is_a_pipe),
    case("registrations.number_of_a_removed_copy_is_a_new_connection", removed_copy_is_a_connection),
    case("registrations.number_of_a_closed_copy_is_a_new_connection", closed_copy_is_a_connection),
    case("registrations.number_of_a_fired_copy_is_a_pipe", fired_copy_is_a_pipe),
    case("registrations.closed_copy_goes_on_to_tell", closed_copy_tells),
    case("registrations.copy_closed_before_the_upgrade_goes_on_to_tell", copy_closed_early_tells)
        .never("a registration that nobody can change any more is the kernel's"),
    case("registrations.one_shot_beside_a_writer_on_the_kernel", one_shot_beside_kernel_writer),
    case("registrations.exclusive_after_a_return", exclusive_after_return),
    case("registrations.unseen_set_beside_a_seen_one", unseen_beside_seen),
    case("registrations.unseen_set_beside_a_closed_one", unseen_beside_closed),
];

const DATA: u64 = 7;

fn told(set: Epoll) -> Vec<(u32, u64)> {
    set.wait(2000)
}

/// A set for which a wait has been made.
fn seen_set() -> Epoll {
    let set = Epoll::new();
    assert_eq!(set.wait(0), []);
    set
}

fn copy_of(end: &End) -> Fd {
    fds::dup(end.fd()).expect("dup") as Fd
}

/// A pipe whose reading end gets this number, which is free.
fn pipe_at(number: Fd) -> Fd {
    let (read, write) = fds::pipe(0);
    if read != number {
        assert_eq!(fds::dup2(read, number), Ok(number as usize));
        fds::close(read).expect("close");
    }
    write
}

/// A connection whose first end gets this number, which is free.
fn connection_at(number: Fd) -> (End, End) {
    let (mut new, peer) = link::cold_pair_ends(V4, 3);
    if new.fd() != number {
        assert_eq!(fds::dup2(new.fd(), number), Ok(number as usize));
        new.close();
        new.moved_to(number);
    }
    (new, peer)
}

fn tells_of_a_pipe(set: Epoll, number: Fd) {
    let write = pipe_at(number);
    assert_eq!(set.control(EPOLL_CTL_MOD, number, IN, DATA), Err(ENOENT));
    assert_eq!(set.control(EPOLL_CTL_DEL, number, 0, 0), Err(ENOENT));
    assert_eq!(set.control(EPOLL_CTL_ADD, number, IN, DATA), Ok(0));
    assert_eq!(set.control(EPOLL_CTL_ADD, number, IN, DATA), Err(EEXIST));
    assert_eq!(set.wait(0), []);
    assert_eq!(io::write(write, b"x"), Ok(1));
    assert_eq!(told(set), [(IN, DATA)]);
    assert_eq!(set.control(EPOLL_CTL_DEL, number, 0, 0), Ok(0));
    assert_eq!(set.wait(0), []);
}

/// As in programs that watch each direction by a descriptor of its own.
fn removed_copy_is_a_pipe() {
    let (mut end, mut peer) = link::own_pair(V4);
    let set = seen_set();
    let copy = copy_of(&end);
    assert_eq!(set.control(EPOLL_CTL_ADD, copy, IN, 1), Ok(0));
    peer.send(10);
    assert_eq!(told(set), [(IN, 1)]);
    end.recv(10);
    assert_eq!(set.control(EPOLL_CTL_DEL, copy, 0, 0), Ok(0));
    fds::close(copy).expect("close");
    tells_of_a_pipe(set, copy);
    peer.send(10);
    assert_eq!(set.wait(0), []);
    end.recv(10);
}

fn removed_copy_is_a_connection() {
    let (end, peer) = link::own_pair(V4);
    let set = seen_set();
    let copy = copy_of(&end);
    assert_eq!(set.control(EPOLL_CTL_ADD, copy, IN, 1), Ok(0));
    assert_eq!(set.control(EPOLL_CTL_DEL, copy, 0, 0), Ok(0));
    fds::close(copy).expect("close");
    let (mut new, mut other) = connection_at(copy);
    fds::close(set.fd).expect("close the set");
    other.send(10);
    new.recv(10);
    peer.close();
    end.close();
}

fn closed_copy_is_a_connection() {
    let (end, _peer) = link::own_pair(V4);
    let set = seen_set();
    let copy = copy_of(&end);
    assert_eq!(set.control(EPOLL_CTL_ADD, copy, IN, 1), Ok(0));
    fds::close(copy).expect("close");
    end.close(); // the kernel has removed it
    let (mut new, mut other) = connection_at(copy);
    assert_eq!(set.control(EPOLL_CTL_ADD, copy, IN, 2), Ok(0));
    other.send(10);
    assert_eq!(told(set), [(IN, 2)]);
    new.recv(10);
}

fn fired_copy_is_a_pipe() {
    let (mut end, mut peer) = link::own_pair(V4);
    let set = seen_set();
    let copy = copy_of(&end);
    assert_eq!(set.control(EPOLL_CTL_ADD, copy, IN | ONESHOT, 1), Ok(0));
    peer.send(10);
    assert_eq!(told(set), [(IN, 1)]);
    end.recv(10);
    fds::close(copy).expect("close");
    tells_of_a_pipe(set, copy);
}

/// The kernel registers the open file description, not the number.
fn closed_copy_tells() {
    let (mut end, mut peer) = link::own_pair(V4);
    let set = seen_set();
    let copy = copy_of(&end);
    assert_eq!(set.control(EPOLL_CTL_ADD, copy, IN, DATA), Ok(0));
    fds::close(copy).expect("close");
    for _ in 0..5 {
        peer.send(10);
        assert_eq!(told(set), [(IN, DATA)]);
        end.recv(10);
        assert_eq!(set.wait(0), []);
        end.send(10);
        peer.recv(10);
    }
    peer.close();
    assert_eq!(told(set)[0].1, DATA);
}

fn copy_closed_early_tells() {
    let (mut end, mut peer) = link::cold_pair_ends(V4, 1);
    let set = seen_set();
    let copy = copy_of(&end);
    assert_eq!(set.control(EPOLL_CTL_ADD, copy, IN, DATA), Ok(0));
    fds::close(copy).expect("close");
    heard_in(set, &mut end, &mut peer, 50);
}

/// One direction is on the kernel for good; arrivals are reported all the same.
fn one_shot_beside_kernel_writer() {
    let (mut end, mut peer) = link::own_pair(V4);
    let set = seen_set();
    assert_eq!(set.control(EPOLL_CTL_ADD, end.fd(), IN | ONESHOT, DATA), Ok(0));
    peer.send(10);
    assert_eq!(told(set), [(IN, DATA)]);
    end.recv(10);
    let (read, write) = fds::pipe(0);
    let bytes = end.tx.upcoming(5);
    assert_eq!(io::write(write, &bytes), Ok(5));
    assert_eq!(io::splice(read, end.fd(), 5, 0), Ok(5));
    end.tx.sent(5);
    assert_eq!(set.control(EPOLL_CTL_MOD, end.fd(), IN | ONESHOT, DATA), Ok(0));
    peer.send(10);
    assert_eq!(told(set), [(IN, DATA)]);
    end.recv(10);
    peer.recv(5);
}

fn exclusive_after_return() {
    let (mut end, mut peer) = link::own_pair(V4);
    let set = seen_set();
    assert_eq!(set.control(EPOLL_CTL_ADD, end.fd(), IN | EXCLUSIVE, DATA), Ok(0));
    peer.send(10);
    assert_eq!(told(set), [(IN, DATA)]);
    end.recv(10);
    net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, &1).expect("SO_RCVLOWAT");
    for _ in 0..10 {
        peer.send(10);
        end.recv(10);
        end.send(10);
        peer.recv(10);
    }
    assert_eq!(set.wait(0), []);
    peer.send(10);
    assert_eq!(told(set), [(IN, DATA)]);
    end.recv(10);
    peer.close();
    assert_eq!(told(set)[0].1, DATA);
}

/// A set that a child also has: what is added to it stays on the kernel. Passes the only descriptor of the set in this process
/// to `work`, and ends the child afterwards.
fn unseen(work: impl FnOnce(Epoll)) {
    let set = Epoll::new();
    let (read, write) = fds::pipe(libc::O_CLOEXEC);
    let child = in_child(|| {
        fds::close(write).expect("close");
        assert_eq!(io::read(read, &mut [0]), Ok(0));
    });
    work(set);
    fds::close(write).expect("close");
    child.succeed();
}

fn heard_in(set: Epoll, end: &mut End, peer: &mut End, rounds: usize) {
    for _ in 0..rounds {
        peer.send(10);
        assert_eq!(told(set), [(IN, DATA)]);
        end.recv(10);
        end.send(10);
        peer.recv(10);
    }
}

fn unseen_beside_seen() {
    unseen(|unseen| {
        let seen = seen_set();
        let (mut end, mut peer) = link::own_pair(V4);
        let copy = copy_of(&end);
        assert_eq!(unseen.control(EPOLL_CTL_ADD, copy, IN, DATA), Ok(0));
        assert_eq!(seen.control(EPOLL_CTL_ADD, end.fd(), IN, 1), Ok(0));
        peer.send(10);
        end.recv(10);
        heard_in(unseen, &mut end, &mut peer, 5);
    });
}

fn unseen_beside_closed() {
    unseen(|unseen| {
        let (mut end, mut peer) = link::own_pair(V4);
        let copy = copy_of(&end);
        assert_eq!(unseen.control(EPOLL_CTL_ADD, copy, IN, DATA), Ok(0));
        fds::close(Epoll::new().fd).expect("close");
        peer.send(10);
        end.recv(10);
        heard_in(unseen, &mut end, &mut peer, 5);
    });
}
