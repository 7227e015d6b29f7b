//! Invalid timeouts are refused in all waits. Other timeouts are rounded and limited as by the kernel.

use std::ptr::{null, null_mut};
use std::time::Instant;

use libc::{epoll_event, fd_set, pollfd, timespec, timeval};

use crate::around::{goes_on, on_both};
use crate::carried::Awaited;
use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link;
use crate::sys::epoll::{self, Epoll};
use crate::sys::errno::{EAGAIN, EDOM, EINVAL, outcome};
use crate::sys::net::Family::V4;
use crate::sys::{Fd, bad, cpu, fds, glibc, io, net, poll, threads};

pub const CASES: &[Case] = &[
    case("bad_times.of_waits", || on_both(waits)),
    case("bad_times.of_waits_for_others", of_others).no_connection(),
    case("bad_times.of_sockets", || on_both(timeouts)),
    case("bad_times.negative_before_the_upgrade", before_the_upgrade),
    case("bad_times.negative_before_connect", before_connect).never(NOT_TOLD),
    case("bad_times.negative_of_a_listener", of_a_listener).never(NOT_TOLD),
    case("bad_times.of_recvmmsg", || on_both(many)),
    case("bad_times.more_microseconds_than_a_second_has", || on_both(long_microseconds)),
    case("bad_times.time_that_is_left", || on_both(left)),
];

const NOT_TOLD: &str = "the kernel does not tell which sockets have such a timeout";

const BAD: [timespec; 5] = [
    timespec { tv_sec: -1, tv_nsec: 0 },
    timespec { tv_sec: -1, tv_nsec: 999_999_999 },
    timespec { tv_sec: 0, tv_nsec: -1 },
    timespec { tv_sec: 0, tv_nsec: 1_000_000_000 },
    timespec { tv_sec: i64::MIN, tv_nsec: i64::MAX },
];

const BAD_VAL: [timeval; 3] =
    [timeval { tv_sec: -1, tv_usec: 0 }, timeval { tv_sec: -1, tv_usec: 999_999 }, timeval { tv_sec: 0, tv_usec: -1 }];

fn refused(fd: Fd, set: Fd) {
    let mut entry = pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut event = epoll_event { events: 0, u64: 0 };
    for time in &BAD {
        let mut bits = [0u64; 16];
        bits[fd as usize / 64] |= 1 << (fd % 64);
        let sets = bits.as_mut_ptr().cast::<fd_set>();
        // SAFETY: all pointers are alive.
        unsafe {
            assert_eq!(outcome(libc::ppoll(&mut entry, 1, time, null())), Err(EINVAL));
            assert_eq!(outcome(libc::pselect(fd + 1, sets, null_mut(), null_mut(), time, null())), Err(EINVAL));
            assert_eq!(outcome(glibc::epoll_pwait2(set, &mut event, 1, time, null())), Err(EINVAL));
        }
        assert_eq!(bits[fd as usize / 64], 1 << (fd % 64));
    }
    for mut time in BAD_VAL {
        let mut bits = [0u64; 16];
        bits[fd as usize / 64] |= 1 << (fd % 64);
        let sets = bits.as_mut_ptr().cast::<fd_set>();
        // SAFETY: as above.
        let ret = unsafe { libc::select(fd + 1, sets, null_mut(), null_mut(), &mut time) };
        assert_eq!(outcome(ret), Err(EINVAL));
    }
}

fn waits(client: &mut End, server: &mut End) {
    let set = Epoll::new();
    set.add(client.fd(), epoll::IN);
    refused(client.fd(), set.fd);
    // The same if an event is ready.
    server.send(1);
    client.rx.await_bytes(1);
    refused(client.fd(), set.fd);
    client.recv(1);
    fds::close(set.fd).expect("close");
}

fn of_others() {
    let (out, into) = fds::pipe(0);
    let set = Epoll::new();
    set.add(out, epoll::IN);
    refused(out, set.fd);
    for fd in [out, into, set.fd] {
        fds::close(fd).expect("close");
    }
}

fn set_timeout(fd: Fd, name: i32, sec: i64, usec: i64) -> crate::sys::errno::Outcome {
    net::set_option(fd, libc::SOL_SOCKET, name, &timeval { tv_sec: sec, tv_usec: usec })
}

fn timeouts(client: &mut End, server: &mut End) {
    let fd = client.fd();
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        assert_eq!(set_timeout(fd, name, 0, -1), Err(EDOM));
        assert_eq!(set_timeout(fd, name, 0, 1_000_000), Err(EDOM));
        assert_eq!(set_timeout(fd, name, -1, 0), Ok(0), "a negative time is none at all");
    }
    never_waits(fd);
    assert_eq!(set_timeout(fd, libc::SO_RCVTIMEO, 0, 60_000), Ok(0));
    let began = Instant::now();
    assert_eq!(io::recv(fd, &mut [0], 0), Err(EAGAIN));
    assert!(began.elapsed().as_millis() >= 50, "it waits again");
    assert_eq!(set_timeout(fd, libc::SO_RCVTIMEO, 0, 0), Ok(0));
    assert_eq!(set_timeout(fd, libc::SO_SNDTIMEO, 0, 0), Ok(0));
    server.send(1);
    client.recv(1);
    for sec in [i64::MAX / 1_000_000, i64::MAX / 1_000, i64::MAX] {
        assert_eq!(set_timeout(fd, libc::SO_RCVTIMEO, sec, 775_807), Ok(0));
        waits_for_long(client, server);
    }
    assert_eq!(set_timeout(fd, libc::SO_RCVTIMEO, 0, 0), Ok(0));
}

fn waits_for_long(client: &mut End, server: &mut End) {
    let fd = client.fd();
    let waiter = threads::blocked(move || {
        let mut byte = [0];
        (io::recv(fd, &mut byte, 0), byte)
    });
    server.send(1);
    let (received, byte) = waiter.join();
    assert_eq!(received, Ok(1));
    client.rx.arrived(&byte);
}

fn never_waits(fd: Fd) {
    let began = Instant::now();
    assert_eq!(io::recv(fd, &mut [0], 0), Err(EAGAIN));
    assert_eq!(io::read(fd, &mut [0]), Err(EAGAIN));
    assert!(began.elapsed().as_millis() < 1000, "a read that must not wait has waited");
}

/// getsockopt(2) does not reveal a negative timeout, so the library must know it before the upgrade.
fn before_the_upgrade() {
    let (mut client, mut server) = link::cold_pair_ends(V4, 0);
    assert_eq!(set_timeout(client.fd(), libc::SO_RCVTIMEO, -1, 0), Ok(0));
    let awaited = Awaited::of(&[client.fd(), server.fd()]);
    exchange(&mut client, &mut server, || awaited.rest());
    never_waits(client.fd());
    assert_eq!(set_timeout(client.fd(), libc::SO_RCVTIMEO, 0, 0), Ok(0));
    goes_on(&mut client, &mut server);
}

fn before_connect() {
    let listener = link::Listener::new(V4);
    let fd = net::socket(V4, libc::SOCK_CLOEXEC);
    assert_eq!(set_timeout(fd, libc::SO_RCVTIMEO, -1, 0), Ok(0));
    net::connect(fd, &listener.addr()).expect("connect");
    let mut client = End::new(fd, Side::Client);
    let mut server = End::new(listener.accept(), Side::Server);
    exchange(&mut client, &mut server, || ());
    never_waits(fd);
}

/// An accepted socket inherits its listener's timeouts.
fn of_a_listener() {
    let listener = link::Listener::new(V4);
    assert_eq!(set_timeout(listener.fd, libc::SO_RCVTIMEO, -1, 0), Ok(0));
    let mut client = End::new(link::connect(&listener.addr(), V4), Side::Client);
    cpu::eventually("the connection can be accepted", || poll::events_of(listener.fd, libc::POLLIN, 0) != 0);
    let mut server = End::new(listener.accept(), Side::Server);
    exchange(&mut server, &mut client, || ());
    never_waits(server.fd());
}

/// Enough for an upgrade. Only the other end waits for what it reads. `after`: each round.
fn exchange(hasty: &mut End, other: &mut End, mut after: impl FnMut()) {
    for _ in 0..link::WARM_ROUNDS {
        hasty.send(64);
        other.recv(64);
        other.send(64);
        hasty.rx.await_bytes(64);
        hasty.recv(64);
        after();
    }
}

fn many(client: &mut End, server: &mut End) {
    let mut byte = 0u8;
    let mut v = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: integers and null pointers.
    let mut entry: libc::mmsghdr = unsafe { std::mem::zeroed() };
    (entry.msg_hdr.msg_iov, entry.msg_hdr.msg_iovlen) = (&raw mut v, 1);
    server.send(1);
    client.rx.await_bytes(1);
    for mut time in BAD {
        // SAFETY: one entry, alive.
        let ret = unsafe { libc::recvmmsg(client.fd(), &mut entry, 1, 0, &mut time) };
        assert_eq!(outcome(ret), Err(EINVAL));
    }
    // SAFETY: a bad pointer, which is what is tested.
    let ret = unsafe { libc::recvmmsg(client.fd(), &mut entry, 1, 0, bad::nowhere()) };
    assert_eq!(outcome(ret), Err(crate::sys::errno::EFAULT));
    client.recv(1);
}

fn long_microseconds(client: &mut End, _: &mut End) {
    let fd = client.fd();
    let mut bits = [0u64; 16];
    bits[fd as usize / 64] |= 1 << (fd % 64);
    let mut time = timeval { tv_sec: 0, tv_usec: 1_100_000 };
    let began = Instant::now();
    // SAFETY: set and time are alive.
    let ret = unsafe { libc::select(fd + 1, bits.as_mut_ptr().cast(), null_mut(), null_mut(), &mut time) };
    assert_eq!(outcome(ret), Ok(0));
    assert!(began.elapsed().as_millis() >= 1090);
    assert_eq!(bits[fd as usize / 64] >> (fd % 64) & 1, 0, "a set of which nothing is ready is empty");
}

/// select() writes back the time that is left; the other calls do not.
fn left(client: &mut End, server: &mut End) {
    let fd = client.fd();
    server.send(1);
    client.rx.await_bytes(1);
    let mut bits = [0u64; 16];
    bits[fd as usize / 64] |= 1 << (fd % 64);
    let mut time = timeval { tv_sec: 100, tv_usec: 0 };
    // SAFETY: set and time are alive.
    let ret = unsafe { libc::select(fd + 1, bits.as_mut_ptr().cast(), null_mut(), null_mut(), &mut time) };
    assert_eq!(outcome(ret), Ok(1));
    assert!(time.tv_sec == 99 && time.tv_usec > 0, "{}.{:06} s are left", time.tv_sec, time.tv_usec);
    let spec = timespec { tv_sec: 100, tv_nsec: 0 };
    let mut entry = pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: as above.
    assert_eq!(outcome(unsafe { libc::ppoll(&mut entry, 1, &spec, null()) }), Ok(1));
    assert_eq!((spec.tv_sec, spec.tv_nsec), (100, 0));
    client.recv(1);
}
