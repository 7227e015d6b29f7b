//! Level-triggered epoll: an event for as long as the state holds.

use crate::case::{Case, case};
use crate::link;
use crate::sys::epoll::{Epoll, IN, ONESHOT, OUT};
use crate::sys::errno::{EAGAIN, EBADF, EEXIST, EINVAL, ENOENT, EPERM};
use crate::sys::net::Family::{V4, V6};
use crate::sys::{bare, fds, files, io};

pub const CASES: &[Case] = &[
    case("epoll_level.in_until_drained_v4", || in_until_drained(V4)),
    case("epoll_level.in_until_drained_v6", || in_until_drained(V6)),
    case("epoll_level.out_while_there_is_room", out_while_room).bulk(),
    case("epoll_level.added_with_data_waiting", added_late),
    case("epoll_level.deleted_is_silent", deleted),
    case("epoll_level.modify_changes_interest", modify),
    case("epoll_level.data_is_kept", data_is_kept),
    case("epoll_level.oneshot_disarms", || oneshot(0)),
    case("epoll_level.oneshot_edge_disarms", || oneshot(crate::sys::epoll::ET)),
    case("epoll_level.takes_turns_when_room_is_small", takes_turns),
    case("epoll_level.errors_of_epoll_ctl", errors),
    case("epoll_level.set_that_was_made_out_of_sight", unknown_set).reason("foreign"),
    case("epoll_level.stream_by_event_loop", stream).bulk(),
    case("epoll_level.readable_brings_bytes", readable_brings_bytes).bulk(),
    case("epoll_level.old_epoll_create", old_create),
];

fn in_until_drained(family: crate::sys::net::Family) {
    let (mut end, mut peer) = link::client(family);
    let set = Epoll::new();
    set.add(end.fd(), IN);
    for _ in 0..10 {
        assert_eq!(set.wait(0), [], "nothing there yet");
        peer.start("send", &[300]);
        assert_eq!(set.mask_of(end.fd(), 5000), IN);
        peer.finish();
        for _ in 0..3 {
            end.recv(99);
            assert_eq!(set.mask_of(end.fd(), 0), IN, "some bytes are left");
        }
        end.recv(3);
    }
    assert_eq!(set.wait(20), [], "all was read");
}

/// Several connections change their carrier while they are looked at: a program that is told of bytes must find them. Some
/// programs treat EAGAIN there as an error.
fn readable_brings_bytes() {
    const ROUNDS: u64 = 1500;
    let mut ends: Vec<_> = (0..4).map(|_| link::client(V4)).collect();
    let set = Epoll::new();
    for (end, peer) in &mut ends {
        fds::set_nonblocking(end.fd(), true);
        set.add(end.fd(), IN);
        peer.start("echo", &[ROUNDS, 700]);
        end.send(700);
    }
    let mut open = vec![(ROUNDS, 0); ends.len()];
    while open.iter().any(|(rounds, _)| *rounds > 0) {
        for (events, fd) in set.wait(5000) {
            assert_eq!(events, IN);
            let at = ends.iter().position(|(end, _)| end.fd() as u64 == fd).expect("a member");
            let (rounds, got) = &mut open[at];
            *got += ends[at].0.rx.try_recv(700 - *got, io::read).expect("bytes to read");
            if *got == 700 {
                (*rounds, *got) = (*rounds - 1, 0);
                if *rounds > 0 {
                    ends[at].0.send(700);
                }
            }
        }
    }
    for (_, peer) in &mut ends {
        peer.finish();
    }
}

fn out_while_room() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN | OUT);
    for _ in 0..3 {
        assert_eq!(set.mask_of(end.fd(), 0), OUT);
    }
    let filled = end.tx.fill();
    assert_eq!(set.wait(30), [], "full");
    peer.send(10);
    assert_eq!(set.mask_of(end.fd(), 2000), IN, "readable though not writable");
    peer.start("recv", &[filled as u64]);
    crate::sys::cpu::eventually("room again", || set.mask_of(end.fd(), 100) == IN | OUT);
    peer.finish();
    end.recv(10);
}

fn added_late() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..5 {
        peer.send(10);
        end.rx.await_bytes(10);
        let set = Epoll::new();
        set.add(end.fd(), IN);
        assert_eq!(set.mask_of(end.fd(), 0), IN);
        end.recv(10);
        assert_eq!(set.wait(0), []);
        fds::close(set.fd).expect("close the set");
    }
}

fn deleted() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    for _ in 0..3 {
        set.add(end.fd(), IN | OUT);
        assert_eq!(set.mask_of(end.fd(), 0), OUT);
        set.delete(end.fd());
        peer.send(10);
        end.rx.await_bytes(10);
        assert_eq!(set.wait(20), []);
        end.recv(10);
    }
}

fn modify() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), OUT);
    peer.send(10);
    end.rx.await_bytes(10);
    assert_eq!(set.mask_of(end.fd(), 0), OUT);
    set.modify(end.fd(), IN);
    assert_eq!(set.mask_of(end.fd(), 0), IN);
    set.modify(end.fd(), 0);
    assert_eq!(set.wait(20), []);
    set.modify(end.fd(), IN | OUT);
    assert_eq!(set.mask_of(end.fd(), 0), IN | OUT);
    end.recv(10);
    assert_eq!(set.mask_of(end.fd(), 0), OUT);
}

/// The 64 bits of data belong to the program, whatever their value; MOD changes them.
fn data_is_kept() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    for (op, data) in
        [(libc::EPOLL_CTL_ADD, u64::MAX), (libc::EPOLL_CTL_MOD, 0), (libc::EPOLL_CTL_MOD, 0xdead_beef_0123_4567)]
    {
        set.control(op, end.fd(), IN, data).expect("epoll_ctl");
        peer.send(1);
        assert_eq!(set.wait(2000), [(IN, data)]);
        end.recv(1);
    }
}

fn oneshot(trigger: u32) {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN | ONESHOT | trigger);
    peer.send(10);
    assert_eq!(set.mask_of(end.fd(), 2000), IN);
    assert_eq!(set.wait(20), [], "one shot only");
    peer.send(10);
    end.rx.await_bytes(20);
    assert_eq!(set.wait(20), [], "new data does not arm it");
    set.modify(end.fd(), IN | ONESHOT | trigger);
    assert_eq!(set.mask_of(end.fd(), 0), IN, "MOD does, and the data is there");
    end.recv(20);
    set.modify(end.fd(), IN | ONESHOT | trigger);
    assert_eq!(set.wait(20), []);
    peer.start("send", &[5]);
    assert_eq!(set.mask_of(end.fd(), 2000), IN);
    peer.finish();
}

/// Eight ready descriptors, room for one event: none is left out. The kernel reports each within eight calls. A layer that adds
/// rings may alternate between the two, so twice that is permitted.
fn takes_turns() {
    let set = Epoll::new();
    let pairs: Vec<_> = (0..6).map(|i| link::numbered_pair(V4, i)).collect();
    let (pipe, event) = (fds::pipe(libc::O_CLOEXEC), fds::eventfd(1));
    io::write(pipe.1, b"x").expect("write to the pipe");
    let mut ready = vec![pipe.0, event];
    for (a, b) in &pairs {
        io::write(a.fd(), b"x").expect("write");
        b.rx.await_bytes(1);
        ready.push(b.fd());
    }
    ready.iter().for_each(|&fd| set.add(fd, IN));
    for round in 0..3 {
        let mut seen: Vec<_> = (0..16).map(|_| set.try_wait(1, 0).expect("epoll_wait")[0].1 as i32).collect();
        seen.sort();
        seen.dedup();
        ready.sort();
        assert_eq!(seen, ready, "round {round}: some descriptor starves");
    }
}

fn errors() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    let (add, del, modify) = (libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_DEL, libc::EPOLL_CTL_MOD);
    let fd = end.fd();
    assert_eq!(set.control(modify, fd, IN, 0), Err(ENOENT));
    assert_eq!(set.control(del, fd, IN, 0), Err(ENOENT));
    assert_eq!(set.control(add, fd, IN, 0), Ok(0));
    assert_eq!(set.control(add, fd, IN, 0), Err(EEXIST));
    assert_eq!(set.control(add, set.fd, IN, 0), Err(EINVAL));
    assert_eq!(set.control(99, fd, IN, 0), Err(EINVAL));
    assert_eq!(set.control(add, 9999, IN, 0), Err(EBADF));
    assert_eq!(set.control(add, files::holding(b"x"), IN, 0), Err(EPERM));
    assert_eq!(Epoll { fd: 9999 }.control(add, fd, IN, 0), Err(EBADF));
    assert_eq!(Epoll { fd }.control(add, fd, IN, 0), Err(EINVAL), "a socket is no epoll set");
    assert_eq!(set.try_wait(0, 0), Err(EINVAL), "room for no event");
    assert_eq!(Epoll { fd }.try_wait(1, 0), Err(EINVAL));
    assert_eq!(Epoll { fd: 9999 }.try_wait(1, 0), Err(EBADF));
    // None of this has taken the connection off its ring.
    for _ in 0..10 {
        end.send(1000);
        peer.recv(1000);
    }
}

/// A set that the library does not know cannot wait for rings.
fn unknown_set() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll { fd: bare::epoll_create() };
    set.add(end.fd(), IN);
    peer.send(100);
    assert_eq!(set.wait(5000), [(IN, end.fd() as u64)]);
    end.recv(100);
    link::warm_up(&mut end, &mut peer);
}

/// Both directions in one thread, as an event loop does it.
fn stream() {
    const N: u64 = 4 << 20;
    let (mut end, mut peer) = link::client(V4);
    fds::set_nonblocking(end.fd(), true);
    let set = Epoll::new();
    set.add(end.fd(), IN | OUT);
    peer.start("mixed", &[N, N, 50_000, 4]);
    let (send_goal, recv_goal) = (end.tx.at + N, end.rx.at + N);
    let mut rng = crate::rng::Rng::new(crate::rng::run_seed());
    while end.tx.at < send_goal || end.rx.at < recv_goal {
        let interest = if end.tx.at < send_goal { IN | OUT } else { IN };
        set.modify(end.fd(), interest);
        let mask = set.mask_of(end.fd(), -1);
        assert_eq!(mask & !interest, 0, "an event that nobody asked for");
        if mask & IN != 0 {
            assert_ne!(end.rx.try_recv(rng.size(60_000), io::read), Err(EAGAIN), "IN, but nothing to read");
        }
        if mask & OUT != 0 {
            let n = rng.size(60_000).min((send_goal - end.tx.at) as usize);
            assert_ne!(end.tx.try_send(n, io::write), Err(EAGAIN), "OUT, but no room");
        }
    }
    peer.finish();
}

fn old_create() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::with_size(1);
    set.add(end.fd(), IN);
    peer.send(10);
    assert_eq!(set.mask_of(end.fd(), 2000), IN);
    end.recv(10);
    assert_eq!(set.wait(10), []);
}
