//! Urgent (out-of-band) data: one byte outside the stream, and a mark in the stream.

use libc::{MSG_OOB, POLLIN, POLLPRI, SOL_SOCKET};

use crate::case::{Case, case};
use crate::link;
use crate::sys::cpu::eventually;
use crate::sys::epoll::{Epoll, IN, PRI};
use crate::sys::errno::EINVAL;
use crate::sys::net::Family::V4;
use crate::sys::select::{Bits, Sets, select};
use crate::sys::{Fd, fds, io, net, poll, signal};

pub const CASES: &[Case] = &[
    case("urgent.byte_beside_the_stream", beside).reason("urgent"),
    case("urgent.reads_stop_at_the_mark", mark),
    case("urgent.inline", inline),
    case("urgent.sent_by_us", sent),
    case("urgent.exceptional_for_poll_epoll_select", exceptional),
    case("urgent.raises_sigurg", sigurg),
    case("urgent.none_there", none),
    case("urgent.stream_goes_on_afterwards", goes_on).bulk(),
];

fn at_mark(fd: Fd) -> bool {
    // The libc crate has no name for SIOCATMARK; this is its number on every Linux but mips.
    const SIOCATMARK: libc::c_ulong = 0x8905;
    fds::ioctl_int(fd, SIOCATMARK, -1).expect("SIOCATMARK") != 0
}

fn urgent_byte(fd: Fd, flags: i32) -> crate::sys::errno::Outcome {
    let mut byte = [0];
    io::recv(fd, &mut byte, MSG_OOB | flags).map(|n| n * 1000 + byte[0] as usize)
}

fn await_urgent(fd: Fd) {
    assert_eq!(poll::events_of(fd, POLLPRI, 3000), POLLPRI);
}

fn beside() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(100);
    peer.call("urgent", &[b'!' as u64]);
    peer.send(100);
    await_urgent(end.fd());
    assert_eq!(urgent_byte(end.fd(), libc::MSG_PEEK), Ok(1000 + b'!' as usize));
    assert_eq!(urgent_byte(end.fd(), 0), Ok(1000 + b'!' as usize));
    assert_eq!(urgent_byte(end.fd(), 0), Err(EINVAL), "it is read once");
    end.recv(200);
}

/// No read crosses the mark, so a program can distinguish bytes from before and after.
fn mark() {
    let (mut end, mut peer) = link::client(V4);
    assert!(!at_mark(end.fd()));
    peer.send(30);
    peer.call("urgent", &[b'!' as u64]);
    peer.send(40);
    await_urgent(end.fd());
    eventually("all has arrived", || fds::unread(end.fd()) == 30);
    assert_eq!(end.rx.try_recv(10, io::read), Ok(10));
    assert!(!at_mark(end.fd()));
    assert_eq!(end.rx.try_recv(1000, io::read), Ok(20), "up to the mark");
    assert!(at_mark(end.fd()));
    end.recv(40);
    assert!(!at_mark(end.fd()));
}

/// With SO_OOBINLINE the byte is part of the stream, and the mark is before it.
fn inline() {
    let (mut end, mut peer) = link::client(V4);
    net::set_option(end.fd(), SOL_SOCKET, libc::SO_OOBINLINE, &1).expect("SO_OOBINLINE");
    peer.send(30);
    peer.call("urgent", &[b'!' as u64]);
    peer.send(40);
    await_urgent(end.fd());
    assert_eq!(urgent_byte(end.fd(), 0), Err(EINVAL));
    assert_eq!(end.rx.try_recv(1000, io::read), Ok(30), "up to the mark");
    assert!(at_mark(end.fd()));
    let mut byte = [0];
    assert_eq!(io::read(end.fd(), &mut byte), Ok(1));
    assert_eq!(byte[0], b'!');
    end.recv(40);
}

/// This side sends urgent data in mid-stream; the peer reads the stream without that byte.
fn sent() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..5 {
        peer.start("recv", &[400]);
        end.send(200);
        assert_eq!(io::send(end.fd(), b"!", MSG_OOB), Ok(1));
        end.send(200);
        peer.finish();
    }
    // In one process, to see both ends.
    let (mut a, mut b) = link::own_pair(V4);
    a.send(10);
    // The last of several bytes is the urgent one.
    let head = a.tx.upcoming(4);
    assert_eq!(io::send(a.fd(), &[&head[..], b"!"].concat(), MSG_OOB), Ok(5));
    a.tx.sent(4);
    await_urgent(b.fd());
    assert_eq!(urgent_byte(b.fd(), 0), Ok(1000 + b'!' as usize));
    b.recv(14);
}

fn exceptional() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN | PRI);
    peer.call("urgent", &[b'!' as u64]);
    eventually("epoll says PRI", || set.mask_of(end.fd(), 100) & PRI != 0);
    let mut sets = Sets { read: Bits::of(&[end.fd()]), except: Bits::of(&[end.fd()]), ..Sets::default() };
    assert!(select(end.fd() + 1, &mut sets, 1000).0.expect("select") >= 1);
    assert!(sets.except.has(end.fd()), "select's third set");
    assert_eq!(urgent_byte(end.fd(), 0), Ok(1000 + b'!' as usize));
    assert_eq!(poll::events_of(end.fd(), POLLPRI, 10), 0);
    peer.send(10);
    end.recv(10);
    assert_eq!(poll::events_of(end.fd(), POLLIN, 10), 0);
}

fn sigurg() {
    let (mut end, mut peer) = link::client(V4);
    signal::count_signal(libc::SIGURG, libc::SA_RESTART);
    // SAFETY: no arguments.
    fds::fcntl(end.fd(), libc::F_SETOWN, unsafe { libc::getpid() }).expect("F_SETOWN");
    peer.send(10);
    end.recv(10);
    assert_eq!(signal::count(libc::SIGURG), 0);
    peer.call("urgent", &[b'!' as u64]);
    eventually("SIGURG comes", || signal::count(libc::SIGURG) == 1);
    assert_eq!(urgent_byte(end.fd(), 0), Ok(1000 + b'!' as usize));
}

fn none() {
    let (mut end, mut peer) = link::client(V4);
    assert_eq!(urgent_byte(end.fd(), libc::MSG_DONTWAIT), Err(EINVAL));
    assert!(!at_mark(end.fd()));
    peer.send(50);
    end.rx.await_bytes(50);
    assert_eq!(urgent_byte(end.fd(), 0), Err(EINVAL));
    end.recv(50);
}

fn goes_on() {
    let (mut end, mut peer) = link::client(V4);
    for round in 0..5 {
        peer.call("urgent", &[round]);
        peer.start("mixed", &[300_000, 300_000, 10_000, round]);
        crate::traffic::both_ways(&mut end, 300_000, 300_000, 10_000, round + 1);
        peer.finish();
    }
}
