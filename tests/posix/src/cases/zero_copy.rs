//! MSG_ZEROCOPY: the socket's error queue reports when a buffer may be used again.

use libc::{MSG_ERRQUEUE, MSG_ZEROCOPY, POLLERR, SOL_SOCKET};

use crate::case::{Case, case};
use crate::link;
use crate::sys::errno::EAGAIN;
use crate::sys::net::Family::V4;
use crate::sys::{Fd, fds, io, net, poll};

pub const CASES: &[Case] = &[
    case("zero_copy.completions_are_reported", completions),
    case("zero_copy.mixed_with_plain_sends", mixed),
    case("zero_copy.flag_without_the_option", without_option).reason("kernel-feature"),
    case("zero_copy.error_queue_is_empty", empty_queue),
];

fn enable(fd: Fd) {
    net::set_option(fd, SOL_SOCKET, libc::SO_ZEROCOPY, &1).expect("SO_ZEROCOPY");
}

/// Waits for the next notice. Returns the numbers of the first and the last send that it concerns.
fn notice(fd: Fd) -> (u32, u32) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        match io::error_queue(fd) {
            Ok(range) => return range,
            Err(e) => assert_eq!(e, EAGAIN),
        }
        assert!(std::time::Instant::now() < deadline, "no notice came");
        poll::events_of(fd, 0, 100);
    }
}

fn completions() {
    let (mut end, mut peer) = link::client(V4);
    enable(end.fd());
    for number in 0..5 {
        let bytes = end.tx.upcoming(20_000);
        peer.start("recv", &[20_000]);
        assert_eq!(io::send(end.fd(), &bytes, MSG_ZEROCOPY), Ok(20_000));
        end.tx.sent(20_000);
        peer.finish();
        assert_eq!(poll::events_of(end.fd(), 0, 5000), POLLERR, "a notice waits");
        assert_eq!(notice(end.fd()), (number, number));
    }
    link::warm_up(&mut end, &mut peer);
}

fn mixed() {
    let (mut end, mut peer) = link::client(V4);
    enable(end.fd());
    // The buffers stay allocated until the last notice has come.
    let mut kept = Vec::new();
    for _ in 0..10 {
        peer.start("recv", &[30_000]);
        let bytes = end.tx.upcoming(20_000);
        assert_eq!(io::send(end.fd(), &bytes, MSG_ZEROCOPY), Ok(20_000));
        end.tx.sent(20_000);
        kept.push(bytes);
        end.send(10_000);
        peer.finish();
    }
    let mut next = 0;
    while next < 10 {
        let (first, last) = notice(end.fd());
        assert_eq!(first, next, "notices come in order");
        next = last + 1;
    }
}

/// Without the socket option the flag is ignored.
fn without_option() {
    let (mut end, mut peer) = link::client(V4);
    let bytes = end.tx.upcoming(5000);
    assert_eq!(io::send(end.fd(), &bytes, MSG_ZEROCOPY), Ok(5000));
    end.tx.sent(5000);
    peer.recv(5000);
    assert_eq!(io::error_queue(end.fd()), Err(EAGAIN));
}

/// MSG_ERRQUEUE never waits and never takes from the stream.
fn empty_queue() {
    let (mut end, mut peer) = link::client(V4);
    assert_eq!(io::error_queue(end.fd()), Err(EAGAIN));
    peer.send(100);
    end.rx.await_bytes(100);
    assert_eq!(io::recv(end.fd(), &mut [0; 100], MSG_ERRQUEUE), Err(EAGAIN));
    assert_eq!(io::error_queue(end.fd()), Err(EAGAIN));
    assert_eq!(fds::unread(end.fd()), 100);
    end.recv(100);
}
