//! What one call leaves to the next: errors, flags at the beginning of a call, bytes behind a boundary.

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL, POLLERR, POLLHUP, POLLIN, POLLOUT, SHUT_RDWR, SHUT_WR};

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::cpu::{eventually, sleep_ms};
use crate::sys::errno::{EAGAIN, EBADF, ECONNRESET, EINVAL, EPIPE, Errno, Outcome, outcome};
use crate::sys::net::Family::V4;
use crate::sys::select::{self, Bits, Sets};
use crate::sys::threads::blocked;
use crate::sys::{fds, io, net, poll, process, signal};

pub const CASES: &[Case] = &[
    case("told_once.waits_leave_the_error_of_a_reset", waits_leave_it),
    case("told_once.write_with_bytes_of_ours_unread", write_with_unread),
    case("told_once.after_a_receive_that_brought_something", after_some_bytes),
    case("told_once.recvmmsg_says_it_before_messages", recvmmsg_says_it_first),
    case("told_once.recvmmsg_that_succeeds_leaves_errno", recvmmsg_leaves_errno),
    case("told_once.recvmmsg_with_a_timeout_finds_the_ring", recvmmsg_with_timeout),
    case("told_once.signal_only_if_nothing_went", no_signal_for_some_bytes),
    case("told_once.nonblock_set_while_a_call_blocks", nonblock_meanwhile),
    case("told_once.blocked_call_whose_number_moves", number_moves),
    case("told_once.peer_that_shut_both_ways_answers_with_a_reset", shut_both_ways),
    case("told_once.peek_goes_on_behind_the_ring", peek_behind),
    case("told_once.ring_behind_bytes_that_are_held_back", behind_held_back),
    case("told_once.dup3_that_fails_replaces_nothing", failing_dup3),
    case("told_once.end_that_a_forked_child_does_not_hold_up", child_holds_nothing),
    case("told_once.compat_flag", compat_flag),
];

/// The kernel's number of a TCP state.
const CLOSE: u8 = 7;

/// Two ends. The second has closed with bytes of the first unread, and with bytes of its own under way.
fn reset_with_unread(unread: usize, underway: usize) -> End {
    let (mut end, mut other) = link::own_pair(V4);
    end.send(unread);
    other.rx.await_bytes(unread);
    if underway > 0 {
        other.send(underway);
        end.rx.await_bytes(underway);
    }
    other.close();
    eventually("the reset arrives", || net::tcp_info(end.fd()).tcpi_state == CLOSE);
    end
}

fn waits_leave_it() {
    let end = reset_with_unread(16, 0);
    let mut sets = Sets { write: Bits::of(&[end.fd()]), ..Sets::default() };
    assert_eq!(select::select(1024, &mut sets, 0).0, Ok(1));
    for _ in 0..3 {
        assert_eq!(poll::events_of(end.fd(), POLLIN | POLLOUT, 0) & (POLLERR | POLLHUP), POLLERR | POLLHUP);
    }
    assert_eq!(net::take_error(end.fd()), libc::ECONNRESET);
}

fn write_with_unread() {
    let end = reset_with_unread(216, 0);
    assert_eq!(io::send(end.fd(), b"x", MSG_NOSIGNAL), Err(ECONNRESET));
    assert_eq!(io::send(end.fd(), b"x", MSG_NOSIGNAL), Err(EPIPE));
}

fn after_some_bytes() {
    let mut end = reset_with_unread(58, 17);
    assert_eq!(end.rx.try_recv(200, |fd, buf| io::recv(fd, buf, MSG_WAITALL | MSG_DONTWAIT)), Ok(17));
    assert_eq!(end.rx.ending(), Err(ECONNRESET));
    end.rx.expect_eof();
}

fn recvmmsg_says_it_first() {
    let mut end = reset_with_unread(58, 17);
    let two = |fd, buf: &mut [u8]| io::recvmmsg(fd, buf, MSG_DONTWAIT);
    assert_eq!(end.rx.try_recv(100, two), Err(ECONNRESET), "before the bytes that are there");
    assert_eq!(end.rx.try_recv(100, two), Ok(17));
}

fn recvmmsg_leaves_errno() {
    let (mut end, mut other) = link::own_pair(V4);
    other.send(5);
    end.rx.await_bytes(5);
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = 7777 };
    assert_eq!(end.rx.try_recv(20, |fd, buf| io::recvmmsg(fd, buf, MSG_DONTWAIT)), Ok(5));
    assert_eq!(Errno::last(), Errno(7777));
}

fn recvmmsg_with_timeout() {
    let (mut end, mut other) = link::own_pair(V4);
    other.send(30);
    end.rx.await_bytes(30);
    let call = |fd, buf: &mut [u8]| -> Outcome {
        let mut time = poll::timespec_ms(1000);
        let mut iov = io::pieces(buf);
        let mut entry = libc::mmsghdr { msg_hdr: io::message(&mut iov), msg_len: 0 };
        // SAFETY: entry and time live; the entry's vectors are over a live slice.
        outcome(unsafe { libc::recvmmsg(fd, &mut entry, 1, MSG_DONTWAIT, &mut time) })?;
        Ok(entry.msg_len as usize)
    };
    assert_eq!(end.rx.try_recv(50, call), Ok(30));
    other.send(7);
    end.rx.await_bytes(7);
    assert_eq!(end.rx.try_recv(50, call), Ok(7));
}

/// With the test aid a send goes in parts, the first of which is answered by a reset.
fn no_signal_for_some_bytes() {
    signal::count_signal(libc::SIGPIPE, 0);
    let (mut end, other) = link::own_pair(V4);
    other.close();
    end.rx.expect_eof();
    let sent = end.tx.try_send(4000, io::write);
    assert!(sent.is_ok(), "{sent:?}");
    assert_eq!(signal::count(libc::SIGPIPE), 0);
    assert_eq!(poll::events_of(end.fd(), 0, 1000) & POLLERR, POLLERR);
    assert_eq!(io::write(end.fd(), b"x"), Err(EPIPE));
}

/// O_NONBLOCK affects calls that begin later.
fn nonblock_meanwhile() {
    let (mut end, mut other) = link::own_pair(V4);
    let fd = end.fd();
    let reader = blocked(move || {
        let got = end.rx.try_recv(10, |fd, buf| io::recv(fd, buf, MSG_WAITALL));
        (end, got)
    });
    fds::set_nonblocking(fd, true);
    other.send(4);
    reader.until_asleep();
    other.send(6);
    let (mut end, got) = reader.join();
    assert_eq!(got, Ok(10));
    assert_eq!(end.rx.ending(), Err(EAGAIN));
}

/// The descriptor under which a call waits is closed; another one stays.
fn number_moves() {
    let (mut end, mut other) = link::own_pair(V4);
    let fd = end.fd();
    let reader = blocked(move || {
        let got = end.rx.try_recv(10, |fd, buf| io::recv(fd, buf, MSG_WAITALL));
        (end, got)
    });
    let copy = fds::dup(fd).expect("dup") as i32;
    fds::close(fd).expect("close");
    other.send(4);
    reader.until_asleep();
    other.send(6);
    let (mut end, got) = reader.join();
    assert_eq!(got, Ok(10));
    end.moved_to(copy);
    other.send(100);
    end.recv(100);
}

/// Bytes that it had not read can still be read; later bytes of the peer are answered by a reset.
fn shut_both_ways() {
    let (mut end, mut other) = link::own_pair(V4);
    end.send(19);
    other.rx.await_bytes(19);
    net::shutdown(other.fd(), SHUT_RDWR).expect("shutdown");
    assert_eq!(io::send(end.fd(), b"hello?", MSG_NOSIGNAL), Ok(6));
    assert_eq!(poll::events_of(end.fd(), 0, 1000) & POLLERR, POLLERR);
    assert_eq!(net::take_error(end.fd()), libc::EPIPE);
    other.recv(19);
}

fn peek_behind() {
    let (mut end, mut other) = link::own_pair(V4);
    other.send(1200);
    net::shutdown(end.fd(), SHUT_WR).expect("shutdown");
    other.send(8);
    end.rx.await_bytes(1208);
    let mut seen = vec![0; 2400];
    let n = io::recv(end.fd(), &mut seen, MSG_PEEK | MSG_DONTWAIT).expect("a look");
    end.rx.peeked(&seen[..n]);
    assert_eq!(n, 1208);
    end.recv(1208);
}

/// Bytes that the kernel holds back (MSG_MORE) go out when more bytes follow, even by ring.
fn behind_held_back() {
    let (mut end, mut other) = link::cold_pair_ends(V4, 0);
    other.send(3);
    assert_eq!(end.tx.try_send(200, |fd, buf| io::send(fd, buf, libc::MSG_MORE)), Ok(200));
    sleep_ms(20); // the kernel holds back for 200, and the broker pairs meanwhile
    end.send(119);
    assert_eq!(other.rx.try_recv(400, |fd, buf| io::recv(fd, buf, MSG_DONTWAIT)), Ok(319));
    end.recv(3);
    link::warm_up_pair(&mut end, &mut other);
}

/// The descriptor stays the connection's, and the connection stays in its ring.
fn failing_dup3() {
    let (mut end, mut other) = link::own_pair(V4);
    let (far, _) = link::numbered_pair(V4, 1);
    let copy = fds::dup(end.fd()).expect("dup") as i32;
    assert_eq!(fds::dup3(far.fd(), end.fd(), 1), Err(EINVAL));
    assert_eq!(fds::dup3(far.fd(), end.fd(), libc::O_NONBLOCK), Err(EINVAL));
    other.send(21);
    end.send(156);
    other.recv(156);
    end.recv(21);
    link::warm_up_pair(&mut end, &mut other);
    fds::close(copy).expect("close");
    let limit = process::set_limit(libc::RLIMIT_NOFILE, end.fd() as u64);
    assert_eq!(fds::dup2(far.fd(), end.fd()), Err(EBADF), "beyond the limit");
    process::set_limit(libc::RLIMIT_NOFILE, limit);
    end.send(156);
    other.recv(156);
}

/// A child that is forked while a call waits on a closed descriptor does not inherit the connection that the call keeps alive.
fn child_holds_nothing() {
    let (mut end, mut other) = link::own_pair(V4);
    let fd = end.fd();
    let reader = blocked(move || end.rx.try_recv(10, |fd, buf| io::recv(fd, buf, 0)));
    fds::close(fd).expect("close");
    let (wait, go) = fds::pipe(0);
    let child = process::in_child(|| {
        fds::close(go).expect("close");
        assert_eq!(io::read(wait, &mut [0]), Ok(0), "until the parent has seen the end");
    });
    other.send(4);
    assert_eq!(reader.join(), Ok(4));
    assert_eq!(poll::events_of(other.fd(), POLLIN, 2000) & POLLIN, POLLIN, "nobody holds the other end any more");
    other.rx.expect_eof();
    fds::close(go).expect("close");
    child.succeed();
}

/// MSG_CMSG_COMPAT: no effect on send(2), refused by sendmsg(2).
fn compat_flag() {
    const COMPAT: i32 = i32::MIN;
    let (mut end, mut other) = link::own_pair(V4);
    for carrier in ["ring", "kernel"] {
        assert_eq!(other.tx.try_send(400, |fd, buf| io::send(fd, buf, COMPAT)), Ok(400), "{carrier}");
        assert_eq!(end.rx.try_recv(400, |fd, buf| io::recv(fd, buf, COMPAT | MSG_WAITALL)), Ok(400), "{carrier}");
        assert_eq!(io::sendmsg(other.fd(), b"x", COMPAT), Err(EINVAL), "{carrier}");
        net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, &1).expect("SO_RCVLOWAT");
    }
}
