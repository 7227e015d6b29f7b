//! What a program sees of its socket while it is parked and after it was given back; and what the kernel does with it meanwhile.

use crate::common::*;
use libc::{IPPROTO_TCP, SOL_SOCKET};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use sidestep_repair::{GiveBackError, Queues, Taken, abandon, empty, give_back, take, undo};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

fn connection() -> (Wire, TcpStream, TcpStream) {
    let wire = Wire::shaped(&USUAL);
    let (near, far) = wire.connect(&USUAL);
    (wire, near, far)
}

fn back(fd: impl AsFd, taken: &Taken) {
    give_back(fd, &taken.state, &Queues::new(&taken.unread, &taken.unacknowledged)).expect("give back");
}

fn end(near: TcpStream, far: TcpStream) {
    finish(near, far, &mut Expected::new(1), &mut Expected::new(2), 10_000);
}

#[test]
fn a_parked_socket_gives_and_takes_nothing() {
    let (_wire, near, far) = connection();
    let taken = take(&near).expect("take");
    assert_eq!(recv(&near, &mut [0; 1], RecvFlags::DONTWAIT).map(|_| ()), Err(Errno::PERM));
    assert_eq!(send(&near, b"x", SendFlags::DONTWAIT), Err(Errno::INVAL));
    assert_eq!(raw::get_int(&near, SOL_SOCKET, libc::SO_REUSEADDR), 1, "as Rust sets it on listeners");
    back(&near, &taken);
    end(near, far);
}

/// A packet that was on its way when the connection's packets were diverted.
#[test]
fn a_parked_socket_drops_what_reaches_it() {
    let (wire, near, far) = connection();
    let port = near.local_addr().expect("local").port();
    let taken = take(&near).expect("take");
    wire.count(port);
    (&far).write_all(b"hello").expect("write");
    let retransmissions = || raw::get(&far, IPPROTO_TCP, libc::TCP_INFO).expect("TCP_INFO")[2];
    until("the peer sends again", || retransmissions() > 0);
    assert_eq!((wire.counted(port), raw::unread(&near)), (0, 0));
    back(&near, &taken);
    let mut buffer = [0; 5];
    (&near).read_exact(&mut buffer).expect("read");
    assert_eq!(&buffer, b"hello");
    end(near, far);
}

#[test]
fn undo_goes_on_without_a_packet() {
    let (wire, near, far) = connection();
    raw::set_int(&near, SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    let port = near.local_addr().expect("local").port();
    wire.count(port);
    let taken = take(&near).expect("take");
    assert_eq!(raw::get_int(&near, SOL_SOCKET, libc::SO_KEEPALIVE), 0);
    undo(&near, &taken.state.saved).expect("undo");
    assert_eq!(raw::get_int(&near, SOL_SOCKET, libc::SO_KEEPALIVE), 1);
    assert_eq!(wire.counted(port), 0);
    end(near, far);
}

#[test]
fn give_back_sends_one_probe() {
    let (wire, near, far) = connection();
    let port = near.local_addr().expect("local").port();
    wire.count(port);
    let taken = take(&near).expect("take");
    assert_eq!(wire.counted(port), 0);
    back(&near, &taken);
    assert_eq!(wire.counted(port), 1);
    end(near, far);
}

/// A parked socket sends bytes in flight again, until they are taken out of its queue.
#[test]
fn an_emptied_socket_sends_nothing_again() {
    let (wire, near, far) = connection();
    let mut to_far = Expected::new(1);
    wire.close();
    assert_eq!(to_far.write(&near, 1000), 1000);
    let taken = take(&near).expect("take");
    assert_eq!(taken.unacknowledged.len(), 1000);
    let port = near.local_addr().expect("local").port();
    wire.count(port);
    let began = Instant::now();
    until("the kernel sends again", || wire.counted(port) > 1);
    empty(&near, &taken.state).expect("empty");
    let sent = wire.counted(port);
    // The time to the next one at least doubles each time.
    std::thread::sleep(3 * began.elapsed());
    assert_eq!(wire.counted(port), sent);
    back(&near, &taken);
    wire.open();
    finish(near, far, &mut to_far, &mut Expected::new(2), 10_000);
}

#[test]
fn copies_of_the_descriptor_and_epoll_registrations_survive() {
    let (_wire, near, far) = connection();
    let copy = near.try_clone().expect("dup");
    let cookie = sockopt::socket_cookie(&near).expect("SO_COOKIE");
    let set = epoll::create(CreateFlags::CLOEXEC).expect("epoll_create");
    let edge = EventFlags::IN | EventFlags::ET;
    epoll::add(&set, &near, EventData::new_u64(42), edge).expect("EPOLL_CTL_ADD");
    let taken = take(&near).expect("take");
    back(&copy, &taken);
    assert_eq!(sockopt::socket_cookie(&near), Ok(cookie));
    assert!(events(&set, 0).iter().all(|event| !event.contains(EventFlags::HUP)), "hung up");
    (&far).write_all(b"hello").expect("write");
    let found = events(&set, 60);
    assert!(found[0].contains(EventFlags::IN) && !found[0].intersects(EventFlags::HUP | EventFlags::ERR), "{found:?}");
    let mut buffer = [0; 5];
    (&copy).read_exact(&mut buffer).expect("read");
    assert_eq!(&buffer, b"hello");
    end(near, far);
}

fn events(set: impl AsFd, seconds: i64) -> Vec<EventFlags> {
    let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 4];
    let most = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let found = epoll::wait(set, &mut events[..], Some(&most)).expect("epoll_wait");
    events[..found].iter().map(|event| event.flags).collect()
}

#[test]
fn unread_bytes_are_ready_afterwards() {
    let (_wire, near, far) = connection();
    (&far).write_all(b"hello").expect("write");
    until("the bytes arrive", || raw::unread(&near) == 5);
    let taken = take(&near).expect("take");
    back(&near, &taken);
    let mut wanted = [PollFd::new(&near, PollFlags::IN | PollFlags::OUT)];
    poll(&mut wanted, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll");
    assert_eq!(wanted[0].revents(), PollFlags::IN | PollFlags::OUT);
    let mut buffer = [0; 5];
    (&near).read_exact(&mut buffer).expect("read");
    assert_eq!(&buffer, b"hello");
    end(near, far);
}

#[test]
fn an_abandoned_connection_ends_for_both() {
    let (wire, near, far) = connection();
    wire.close();
    take(&near).expect("take");
    abandon(&near).expect("abandon");
    wire.open();
    assert_eq!((&near).read(&mut [0; 1]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionAborted));
    (&far).write_all(b"x").expect("the first write");
    assert_eq!((&far).read(&mut [0; 1]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
}

/// The peer learns at once that its bytes have arrived, and the parked socket has nothing to say later.
#[test]
fn a_delayed_acknowledgement_is_sent_first() {
    let (_wire, near, far) = connection();
    // Until the kernel has delayed one that has not left by itself.
    until("a delayed acknowledgement", || {
        // A program that answers: the kernel then delays its acknowledgements.
        (&far).write_all(b"hello").expect("write");
        (&near).read_exact(&mut [0; 5]).expect("read");
        (&near).write_all(b"hello").expect("write");
        (&far).read_exact(&mut [0; 5]).expect("read");
        (&far).write_all(b"hello").expect("write");
        (&near).read_exact(&mut [0; 5]).expect("read");
        raw::unacknowledged(&far) == 5
    });
    let taken = take(&near).expect("take");
    assert_eq!(raw::unacknowledged(&far), 0, "the acknowledgement has not arrived");
    back(&near, &taken);
    end(near, far);
}

/// What [`take`] says of bytes in flight: the kernel goes on to send them.
#[test]
fn a_parked_socket_retransmits_and_an_idle_one_is_silent() {
    let (wire, near, far) = connection();
    let (idle, _idle_far) = wire.connect(&USUAL);
    let [port, idle_port] = [&near, &idle].map(|socket| socket.local_addr().expect("local").port());
    wire.close();
    near.set_nonblocking(true).expect("O_NONBLOCK");
    let mut to_far = Expected::new(1);
    to_far.write(&near, 5000);
    let taken = take(&near).expect("take");
    let taken_idle = take(&idle).expect("take");
    wire.count(port);
    wire.count(idle_port);
    until("two retransmissions", || wire.counted(port) >= 2);
    assert_eq!(wire.counted(idle_port), 0);
    back(&near, &taken);
    back(&idle, &taken_idle);
    wire.open();
    finish(near, far, &mut to_far, &mut Expected::new(2), 10_000);
}

/// The kernel gives a parked socket up whose bytes in flight nobody acknowledges. The connection can be given back nonetheless.
#[test]
fn a_parked_socket_that_has_timed_out_is_given_back() {
    let (wire, near, far) = connection();
    raw::set_int(&near, IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 300);
    wire.close();
    near.set_nonblocking(true).expect("O_NONBLOCK");
    let mut to_far = Expected::new(1);
    to_far.write(&near, 5000);
    let taken = take(&near).expect("take");
    let closed = 7;
    until("the socket is closed", || raw::get(&near, IPPROTO_TCP, libc::TCP_INFO).expect("TCP_INFO")[0] == closed);
    back(&near, &taken);
    raw::set_int(&near, IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 0);
    no_error(&near);
    wire.open();
    finish(near, far, &mut to_far, &mut Expected::new(2), 10_000);
}

#[test]
fn small_buffers_grow_for_a_moment() {
    let (wire, near, far) = connection();
    near.set_nonblocking(true).expect("O_NONBLOCK");
    far.set_nonblocking(true).expect("O_NONBLOCK");
    let (mut to_near, mut to_far) = (Expected::new(1), Expected::new(2));
    to_near.write_until_full(&far);
    to_far.write_until_full(&near);
    settled(|| raw::unread(&near));
    wire.close();
    raw::set_int(&near, SOL_SOCKET, libc::SO_RCVBUF, 10_000);
    raw::set_int(&near, SOL_SOCKET, libc::SO_SNDBUF, 10_000);
    raw::set_int(&near, IPPROTO_TCP, 25, 2000); // TCP_NOTSENT_LOWAT
    let lock = 2; // SO_BUF_LOCK: the kernel may change the send buffer
    raw::set_int(&near, SOL_SOCKET, 72, lock);
    let sizes = [(SOL_SOCKET, libc::SO_RCVBUF), (SOL_SOCKET, libc::SO_SNDBUF), (IPPROTO_TCP, 25), (SOL_SOCKET, 72)];
    let read = || sizes.map(|(level, number)| raw::get_int(&near, level, number));
    let before = read();
    let taken = take(&near).expect("take");
    assert!(taken.unread.len() > 50_000 && taken.unacknowledged.len() > 50_000);
    assert_ne!(
        taken.state.snd_nxt.wrapping_sub(taken.state.snd_una) as usize,
        taken.unacknowledged.len(),
        "nothing unsent"
    );
    back(&near, &taken);
    let after = read();
    // connect(2) chooses a size for the send buffer, which is not locked.
    assert_eq!((before[0], before[2], before[3]), (after[0], after[2], after[3]));
    assert_eq!(raw::unread(&near) as usize, taken.unread.len());
    assert_eq!(raw::unacknowledged(&near) as usize, taken.unacknowledged.len());
    wire.open();
    finish(near, far, &mut to_far, &mut to_near, 10_000);
}

/// It is noted when the connection is taken, and the kernel goes on to use it.
#[test]
fn explicit_congestion_notification() {
    let wire = Wire::shaped(&USUAL);
    wire.sysctl("tcp_ecn", true);
    let (near, far) = wire.connect(&USUAL);
    for _ in 0..2 {
        let taken = take(&near).expect("take");
        assert!(taken.profile.ecn);
        back(&near, &taken);
    }
    end(near, far);
}

#[test]
fn an_impossible_state_touches_nothing() {
    let (_wire, near, far) = connection();
    let taken = take(&near).expect("take");
    let mut state = taken.state;
    state.snd_nxt = state.snd_nxt.wrapping_add(1);
    let refused = give_back(&near, &state, &Queues::new(b"", b""));
    assert!(matches!(refused, Err(GiveBackError::Impossible(_))), "{refused:?}");
    undo(&near, &taken.state.saved).expect("undo");
    end(near, far);
}

/// The kernel judges the rest. A state that it refuses leaves the socket detached; a right one may follow.
#[test]
fn a_state_that_the_kernel_refuses_is_detached() {
    let (wire, near, far) = connection();
    wire.close();
    let taken = take(&near).expect("take");
    let wrong = [
        {
            let mut state = taken.state;
            state.window.max_window = 0;
            state
        },
        {
            let mut state = taken.state;
            state.window.rcv_wup = state.rcv_nxt.wrapping_add(1);
            state
        },
        {
            let mut state = taken.state;
            state.local = "192.0.2.77:7".parse().expect("an address");
            state
        },
        {
            let mut state = taken.state;
            state.remote = "203.0.113.1:7".parse().expect("an address");
            state
        },
        {
            let mut state = taken.state;
            if let Some(scales) = &mut state.scales {
                scales.send = 15
            };
            state
        },
    ];
    for state in wrong {
        let refused = give_back(&near, &state, &Queues::new(b"", b""));
        assert!(matches!(refused, Err(GiveBackError::Detached(_))), "{state:?}: {refused:?}");
        println!("{}", refused.expect_err("refused"));
    }
    back(&near, &taken);
    wire.open();
    end(near, far);
}
