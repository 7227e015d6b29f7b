//! Flags of single calls: MSG_PEEK, MSG_TRUNC, MSG_MORE, and what recvmsg fills in.

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};

use crate::case::{Case, case};
use crate::end::{End, Recv, Rx, Side};
use crate::link;
use crate::sys::cpu::sleep_ms;
use crate::sys::errno::{EAGAIN, Outcome};
use crate::sys::net::Family::V4;
use crate::sys::{fds, io, net};

pub const CASES: &[Case] = &[
    case("flags.peek_takes_nothing", peek),
    case("flags.peek_by_every_call", peek_by_every_call),
    case("flags.peek_sees_what_arrives_later", peek_grows),
    case("flags.peek_waits_and_says_eagain", peek_waits),
    case("flags.peek_waitall", peek_waitall),
    case("flags.peek_at_the_end", peek_at_the_end),
    case("flags.peek_while_the_carrier_changes", peek_in_stream).bulk(),
    case("flags.peek_offset_of_the_listener", peek_offset)
        .never("the kernel moves the offset of peeks")
        .reason("socket-option"),
    case("flags.truncate_discards_with_null_buffer", truncate_null),
    case("flags.truncate_with_a_buffer_writes_nothing", truncate_buffer),
    case("flags.truncate_drains_a_stream", truncate_drain).bulk(),
    case("flags.truncate_and_peek_writes_nothing", truncate_peek).bulk(),
    case("flags.more_is_sent_in_the_end", more),
    case("flags.cork_is_sent_in_the_end", cork),
    case("flags.nosignal_dontroute_confirm_eor", harmless_flags),
    case("flags.recvfrom_names_nobody", names_nobody),
    case("flags.sendto_ignores_an_address", sendto_with_address),
    case("flags.recvmmsg_waitforone", recvmmsg_waitforone),
];

/// A peek: the position does not change.
fn look(rx: &Rx, n: usize, flags: i32) -> Outcome {
    let mut buf = vec![0; n];
    let seen = io::recv(rx.fd, &mut buf, flags | MSG_PEEK)?;
    rx.peeked(&buf[..seen]);
    Ok(seen)
}

fn peek() {
    let (mut end, mut peer) = link::client(V4);
    for round in 0..20 {
        let n = 1 + round * 531;
        peer.send(n);
        end.rx.await_bytes(n);
        for want in [1, n / 2 + 1, n, n + 100] {
            assert_eq!(look(&end.rx, want, 0), Ok(want.min(n)));
        }
        assert_eq!(fds::unread(end.fd()), n as i32, "a peek must not take");
        end.recv(n);
        assert_eq!(look(&end.rx, 1, MSG_DONTWAIT), Err(EAGAIN));
    }
}

fn peek_by_every_call() {
    let (mut end, mut peer) = link::client(V4);
    let calls: [(&str, Recv); 6] = [
        ("recv", |fd, buf| io::recv(fd, buf, MSG_PEEK)),
        ("recvfrom", |fd, buf| io::recvfrom(fd, buf, MSG_PEEK)),
        ("recvmsg", |fd, buf| io::recvmsg(fd, buf, MSG_PEEK)),
        ("__recv_chk", |fd, buf| io::recv_chk(fd, buf, MSG_PEEK)),
        ("__recvfrom_chk", |fd, buf| io::recvfrom_chk(fd, buf, MSG_PEEK)),
        ("syscall", |fd, buf| io::syscall_recvfrom(fd, buf, MSG_PEEK)),
    ];
    peer.send(1000);
    end.rx.await_bytes(1000);
    for (name, call) in calls {
        let mut buf = [0; 700];
        assert_eq!(call(end.fd(), &mut buf), Ok(700), "{name}");
        end.rx.peeked(&buf);
    }
    end.recv(1000);
}

fn peek_grows() {
    let (mut end, mut peer) = link::client(V4);
    for total in [100, 5000, 5001, 90_000] {
        let before = fds::unread(end.fd()) as usize;
        peer.send(total - before);
        end.rx.await_bytes(total);
        assert_eq!(look(&end.rx, 100_000, 0), Ok(total));
    }
    end.recv(90_000);
}

fn peek_waits() {
    let (mut end, mut peer) = link::client(V4);
    assert_eq!(look(&end.rx, 10, MSG_DONTWAIT), Err(EAGAIN));
    peer.after(30).start("send", &[10]);
    assert_eq!(look(&end.rx, 100, 0), Ok(10), "a blocking peek waits for the first byte");
    peer.finish();
    end.recv(10);
}

fn peek_waitall() {
    let (mut end, mut peer) = link::client(V4);
    peer.start("trickle", &[5, 100, 10]);
    assert_eq!(look(&end.rx, 500, MSG_WAITALL), Ok(500));
    peer.finish();
    end.recv(500);
}

fn peek_at_the_end() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(10);
    peer.shutdown(libc::SHUT_WR);
    end.rx.await_bytes(10);
    assert_eq!(look(&end.rx, 100, 0), Ok(10));
    end.recv(10);
    assert_eq!(look(&end.rx, 100, 0), Ok(0));
    end.rx.expect_eof();
}

/// SO_PEEK_OFF, which an accepted socket has of its listener: a peek goes on where the last one has ended. (Before Linux 6.10 sockets of
/// TCP do not have it.)
fn peek_offset() {
    const SO_PEEK_OFF: i32 = 42;
    let listener = link::Listener::new(V4);
    net::set_option(listener.fd, libc::SOL_SOCKET, SO_PEEK_OFF, &0).expect("SO_PEEK_OFF");
    let mut other = End::new(link::connect(&listener.addr(), V4), Side::Client);
    let mut end = End::new(listener.accept(), Side::Server);
    for _ in 0..20 {
        end.send(10);
        other.recv(10);
        other.send(10);
        end.recv(10);
    }
    other.send(100);
    end.rx.await_bytes(100);
    let mut bytes = [0; 100];
    for part in bytes.chunks_mut(20) {
        assert_eq!(io::recv(end.fd(), part, MSG_PEEK), Ok(20));
    }
    end.rx.peeked(&bytes);
    end.recv(100);
}

/// Peeks of all sizes into a running stream, each followed by a read that must return the same bytes.
fn peek_in_stream() {
    let (mut end, mut peer) = link::client(V4);
    peer.start("mixed", &[1 << 20, 0, 5000, 5]);
    let mut rng = crate::rng::Rng::new(6);
    let goal = end.rx.at + (1 << 20);
    while end.rx.at < goal {
        let seen = look(&end.rx, rng.size(20_000), 0).expect("a peek in mid-stream");
        assert_ne!(seen, 0, "a peek took the middle of the stream for its end");
        let take = rng.size(seen as u64);
        assert_eq!(end.rx.try_recv(take, io::read), Ok(take), "what was seen can be read at once");
    }
    peer.finish();
}

fn truncate_null() {
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    assert_eq!(io::recv_discard(fd, 100, MSG_DONTWAIT), Err(EAGAIN));
    peer.send(5000);
    end.rx.await_bytes(5000);
    assert_eq!(io::recv_discard(fd, 1500, MSG_DONTWAIT), Ok(1500));
    end.rx.skipped(1500);
    end.recv(500);
    assert_eq!(io::recv_discard(fd, 100_000, MSG_DONTWAIT), Ok(3000));
    end.rx.skipped(3000);
    link::warm_up(&mut end, &mut peer);
}

fn truncate_buffer() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(100);
    end.rx.await_bytes(100);
    let mut buf = [7; 60];
    assert_eq!(io::recv(end.fd(), &mut buf, MSG_TRUNC), Ok(60));
    assert_eq!(buf, [7; 60], "TCP's MSG_TRUNC leaves the buffer alone");
    end.rx.skipped(60);
    end.recv(40);
}

/// As a proxy discards a body that nobody wants.
fn truncate_drain() {
    const N: usize = 2 << 20;
    let (mut end, mut peer) = link::client(V4);
    peer.start("mixed", &[N as u64 + 1000, 0, 30_000, 9]);
    let mut left = N;
    while left > 0 {
        let n = io::recv_discard(end.fd(), left.min(50_000), 0).expect("discarding");
        assert!(n > 0);
        left -= n;
        end.rx.skipped(n);
    }
    end.recv(1000);
    peer.finish();
}

/// A peek that only counts, in a running stream: wherever it crosses from one carrier to the other, the buffer stays as it is.
fn truncate_peek() {
    let (mut end, mut peer) = link::client(V4);
    peer.start("mixed", &[1 << 20, 0, 5000, 7]);
    let mut rng = crate::rng::Rng::new(8);
    let goal = end.rx.at + (1 << 20);
    while end.rx.at < goal {
        let mut buf = vec![7; rng.size(20_000)];
        let seen = io::recv(end.fd(), &mut buf, MSG_PEEK | MSG_TRUNC).expect("a peek in mid-stream");
        assert!(seen > 0 && buf.iter().all(|&b| b == 7), "{seen} of {} bytes were to be counted only", buf.len());
        assert!(io::recv_discard(end.fd(), buf.len(), MSG_PEEK).expect("a peek without a buffer") > 0);
        let take = rng.size(seen as u64);
        assert_eq!(end.rx.try_recv(take, io::read), Ok(take), "what was seen can be read at once");
    }
    peer.finish();
}

/// Nothing follows the MSG_MORE, but the bytes arrive (the kernel waits for at most 200 ms).
fn more() {
    let (mut end, mut peer) = link::client(V4);
    assert_eq!(end.tx.try_send(100, |fd, buf| io::send(fd, buf, libc::MSG_MORE)), Ok(100));
    peer.recv(100);
    for _ in 0..50 {
        end.tx.try_send(10, |fd, buf| io::send(fd, buf, libc::MSG_MORE)).expect("send");
    }
    assert_eq!(end.tx.try_send(10, io::write), Ok(10));
    peer.recv(510);
}

fn cork() {
    let (mut end, mut peer) = link::client(V4);
    for on in [1, 0] {
        net::set_option(end.fd(), libc::IPPROTO_TCP, libc::TCP_CORK, &on).expect("TCP_CORK");
        end.send(333);
    }
    peer.recv(666);
    net::set_option(end.fd(), libc::IPPROTO_TCP, libc::TCP_CORK, &1).expect("TCP_CORK");
    end.send(55);
    peer.recv(55);
}

fn harmless_flags() {
    let (mut end, mut peer) = link::client(V4);
    for flag in [libc::MSG_NOSIGNAL, libc::MSG_DONTROUTE, libc::MSG_CONFIRM, libc::MSG_EOR] {
        let bytes = end.tx.upcoming(50);
        assert_eq!(io::send(end.fd(), &bytes, flag), Ok(50), "flag {flag:#x}");
        end.tx.sent(50);
        peer.recv(50);
    }
    peer.send(50);
    end.rx.await_bytes(50);
    let recv = |fd, buf: &mut [u8]| io::recvmsg(fd, buf, libc::MSG_CMSG_CLOEXEC | libc::MSG_NOSIGNAL);
    assert_eq!(end.rx.try_recv(50, recv), Ok(50));
}

/// On a connected TCP socket no address is reported: its length is set to zero.
fn names_nobody() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..2 {
        peer.send(20);
        end.rx.await_bytes(20);
        let (got, len, buf) = io::recvfrom_named(end.fd(), 20);
        assert_eq!((got, len), (Ok(20), 0));
        end.rx.arrived(&buf);
        peer.send(20);
        end.rx.await_bytes(20);
        let filled = io::recvmsg_named(end.fd(), 20);
        assert_eq!(filled.outcome, Ok(20));
        assert_eq!((filled.name_len, filled.control_len, filled.flags), (0, 0, 0));
        end.rx.arrived(&filled.bytes);
    }
}

fn sendto_with_address() {
    let (mut end, mut peer) = link::client(V4);
    let elsewhere = net::Addr::v4([127, 9, 9, 9], 9);
    let bytes = end.tx.upcoming(30);
    assert_eq!(io::sendto_addr(end.fd(), &bytes, 0, &elsewhere), Ok(30));
    end.tx.sent(30);
    peer.recv(30);
}

/// MSG_WAITFORONE: after the first message only those that are there.
fn recvmmsg_waitforone() {
    let (mut end, mut peer) = link::client(V4);
    peer.start("trickle", &[20, 70, 2]);
    let goal = end.rx.at + 20 * 70;
    while end.rx.at < goal {
        let call = |fd, buf: &mut [u8]| io::recvmmsg(fd, buf, libc::MSG_WAITFORONE);
        let got = end.rx.try_recv(100, call).expect("recvmmsg");
        assert!(got > 0, "recvmmsg took a pause for the end");
        sleep_ms(1);
    }
    peer.finish();
}
