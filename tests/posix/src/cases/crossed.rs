//! Actions of another thread, a signal handler or the C library on a connection, during a call or between two calls.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::{SA_RESTART, SIGALRM, c_int};

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::sys::errno::{EBADF, Outcome, outcome};
use crate::sys::net::Addr;
use crate::sys::net::Family::V4;
use crate::sys::stdio::Stream;
use crate::sys::threads::blocked;
use crate::sys::{Fd, fds, io, net, poll, signal};

pub const CASES: &[Case] = &[
    case("crossed.traffic_on_a_connection_that_a_mixed_poll_sleeps_for", mixed_poll),
    case("crossed.poll_whose_number_is_another_connection", poll_of_reused_number),
    case("crossed.call_on_a_closed_connection_beside_a_new_one", call_on_closed),
    case("crossed.handler_closes_what_its_thread_reads", handler_closes),
    case("crossed.number_after_fclose_is_a_pipe", number_after_fclose),
    case("crossed.what_recvmmsg_with_a_timeout_reads_comes_once", recvmmsg_with_timeout).reason("socket-option"),
    case("crossed.what_a_stream_reads_comes_once", stream_reads).reason("stdio"),
    case("crossed.return_with_bytes_of_ring_and_kernel_unread", both_unread).reason("socket-option"),
    case("crossed.empty_send_into_a_full_ring", empty_send).bulk(),
    case("crossed.dissolved_with_unread_bytes", dissolved_with_unread),
];

fn exchange(a: &mut End, b: &mut End, rounds: usize) {
    for _ in 0..rounds {
        a.send(10);
        b.recv(10);
    }
}

/// A thread waits for an upgraded connection and one that is not; bytes for the latter are written meanwhile.
fn mixed_poll() {
    let (warm, _warm_peer) = link::own_pair(V4);
    let (mut cold, mut peer) = link::cold_pair_ends(V4, 1);
    let numbers = [warm.fd(), cold.fd()];
    let waits = blocked(move || {
        let mut list = numbers.map(|fd| poll::want(fd, libc::POLLIN));
        let n = poll::poll(&mut list, 5000);
        (n, list.map(|entry| entry.revents))
    });
    waits.until_asleep();
    exchange(&mut cold, &mut peer, 40);
    assert!(!waits.is_finished());
    peer.send(10);
    assert_eq!(waits.join(), (Ok(1), [0, libc::POLLIN]));
    cold.recv(10);
}

/// The polled descriptor is closed, and a new connection gets its number. The thread wakes for another reason.
fn poll_of_reused_number() {
    let (cold, _peer) = link::cold_pair_ends(V4, 1);
    let (read, write) = fds::pipe(0);
    let number = cold.fd();
    let waits = blocked(move || {
        let mut list = [number, read].map(|fd| poll::want(fd, libc::POLLIN));
        poll::poll(&mut list, 5000)
    });
    waits.until_asleep();
    fds::close(number).expect("close");
    let (mut new, mut other) = link::cold_pair_ends(V4, 2);
    assert_eq!(io::write(write, b"x"), Ok(1));
    assert!(waits.join().is_ok());
    reader_beside_traffic(&mut new, &mut other);
}

/// Traffic while a reader sleeps; the reader gets its bytes.
fn reader_beside_traffic(new: &mut End, other: &mut End) {
    let reader = reads_ten(new);
    reader.until_asleep();
    exchange(new, other, 40);
    other.send(10);
    new.rx.arrived(&reader.join());
    exchange(new, other, 40);
    exchange(other, new, 40);
}

fn reads_ten(end: &End) -> crate::sys::threads::Blocked<Vec<u8>> {
    let fd = end.fd();
    blocked(move || {
        let mut bytes = vec![0; 10];
        assert_eq!(io::read(fd, &mut bytes), Ok(10));
        bytes
    })
}

/// A call continues on a connection whose descriptor is closed, and ends when there is a new connection.
fn call_on_closed() {
    let (closed, closed_peer) = link::cold_pair_ends(V4, 1);
    let fd = closed.fd();
    let ends = blocked(move || io::read(fd, &mut [0]));
    ends.until_asleep();
    fds::close(fd).expect("close");
    let (mut new, mut other) = link::cold_pair_ends(V4, 2);
    closed_peer.close();
    assert_eq!(ends.join(), Ok(0));
    reader_beside_traffic(&mut new, &mut other);
}

static TO_CLOSE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn close_it(_: c_int) {
    let _ = fds::close(TO_CLOSE.load(Ordering::SeqCst));
}

/// After the handler the call restarts, on a descriptor that is closed.
fn handler_closes() {
    let (end, mut other) = link::own_pair(V4);
    TO_CLOSE.store(end.fd(), Ordering::SeqCst);
    signal::handle(SIGALRM, SA_RESTART, close_it);
    signal::alarm_ms(50, 0);
    assert_eq!(io::recv(end.fd(), &mut [0], 0), Err(EBADF));
    other.rx.expect_eof();
}

fn stream_that_has_read(end: &mut End, n: usize) -> Stream {
    let mut stream = Stream::open(end.fd(), c"r+");
    let mut bytes = vec![0; n];
    assert_eq!(stream.read(&mut bytes), n);
    end.rx.arrived(&bytes);
    stream
}

fn number_after_fclose() {
    let (mut end, mut other) = link::own_pair(V4);
    other.send(100);
    end.rx.await_bytes(100);
    let number = end.fd();
    while fds::eventfd(0) < number {} // it is the lowest free one then
    stream_that_has_read(&mut end, 100).close().expect("fclose");
    let (read, write) = fds::pipe(0);
    assert_eq!(read, number);
    assert_eq!(io::write(write, &[7; 10]), Ok(10));
    assert_eq!(io::read(read, &mut [0; 20]), Ok(10));
}

fn stream_reads() {
    let (mut end, mut other) = link::own_pair(V4);
    other.send(100);
    end.rx.await_bytes(100);
    let copy = fds::dup(end.fd()).expect("dup") as Fd;
    let stream = stream_that_has_read(&mut end, 100);
    other.close();
    assert_eq!(io::read(copy, &mut [0; 200]), Ok(0));
    stream.close().expect("fclose");
}

fn receive_in_time(fd: Fd, bytes: &mut [u8]) -> Outcome {
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zero is a valid mmsghdr; its vector is set below.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (&raw mut vector, 1);
    let mut time = poll::timespec_ms(1000);
    // SAFETY: one message with one vector, and a time, all alive.
    let n = outcome(unsafe { libc::recvmmsg(fd, &raw mut message, 1, 0, &raw mut time) })?;
    assert_eq!(n, 1);
    Ok(message.msg_len as usize)
}

fn recvmmsg_with_timeout() {
    let (mut end, mut other) = link::own_pair(V4);
    other.send(100);
    end.rx.await_bytes(100);
    let mut bytes = [0; 200];
    assert_eq!(receive_in_time(end.fd(), &mut bytes), Ok(100));
    end.rx.arrived(&bytes[..100]);
    other.close();
    assert_eq!(io::read(end.fd(), &mut bytes), Ok(0));
}

fn empty_send() {
    let (mut end, mut other) = link::own_pair(V4);
    let mut all = end.tx.fill();
    other.recv(all);
    for _ in 0..20 {
        exchange(&mut end, &mut other, 1);
        exchange(&mut other, &mut end, 1);
    }
    all = 0;
    while let Ok(n) = end.tx.try_send(4096, |fd, buf| io::send(fd, buf, libc::MSG_DONTWAIT)) {
        all += n;
    }
    assert_eq!(io::send(end.fd(), &[], libc::MSG_DONTWAIT), Ok(0));
    other.recv(all);
}

fn dissolved_with_unread() {
    let listener = Listener::new(V4);
    let (end, mut other) = link::own_pair(V4);
    other.send(50);
    end.rx.await_bytes(50);
    assert_eq!(net::connect(end.fd(), &Addr::empty()), Ok(0));
    assert_eq!(net::linger(end.fd()), (0, 0), "nobody has asked for a reset");
    net::connect(end.fd(), &listener.addr()).expect("connect again");
    let mut new = End::numbered(end.fd(), Side::Client, 5);
    let mut peer = End::numbered(listener.accept(), Side::Server, 5);
    new.send(100);
    new.close();
    peer.recv(100);
    peer.rx.expect_eof();
}

/// The writer has gone on by kernel, because the reader has ended its own direction.
fn both_unread() {
    let (mut end, mut other) = link::own_pair(V4);
    other.send(31);
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    other.send(130);
    end.rx.await_bytes(161);
    let mut bytes = [0; 200];
    assert_eq!(receive_in_time(end.fd(), &mut bytes), Ok(161));
    end.rx.arrived(&bytes[..161]);
}
