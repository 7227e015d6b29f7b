//! Both ends execute programs without the library while more bytes are unread in a ring than the kernel's buffers hold. A
//! stream that goes on or ends regularly must have all of them.

use std::time::Duration;

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::peer::{Peer, Preload};
use crate::replace::Exec;
use crate::sys::cpu::{eventually, measure};
use crate::sys::epoll::{self, Epoll};
use crate::sys::errno::{EAGAIN, ECONNRESET, Errno};
use crate::sys::net::Family::V4;
use crate::sys::{fds, io, net, poll};

pub const CASES: &[Case] = &[
    case("undelivered.both_ends_are_handed_over", both_handed_over).large_ring().reason("undelivered"),
    case("undelivered.closed_before_it_is_read", closed).large_ring().reason("undelivered"),
    case("undelivered.nothing_comes_after_the_reset", nothing_after_reset).large_ring().reason("undelivered"),
    case("undelivered.shut_reader_gets_no_byte_twice", shut_reader),
    case("undelivered.nothing_overtakes_it", overtaken),
    case("undelivered.the_reader_is_added_to_a_set_that_nobody_waits_in", added).large_ring(),
    case("undelivered.a_half_closed_reader_leaves_the_ring", half_closed),
    case("undelivered.the_kernel_moves_the_rest", spliced).reason("splice"),
];

const BUFFER: i32 = 16384;

fn small_buffers() -> (End, Peer) {
    buffers(BUFFER)
}

fn buffers(bytes: i32) -> (End, Peer) {
    let (end, mut peer) = link::client(V4);
    net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes).expect("SO_RCVBUF");
    peer.set_option(libc::SOL_SOCKET, libc::SO_SNDBUF, bytes);
    (end, peer)
}

/// Either the rest of the stream arrived, or a reset came instead.
fn expect_all_or_reset(receiver: &mut Peer, filled: u64) {
    let came = receiver.call("whole", &[]);
    let error = Errno(receiver.call("ending", &[]) as i32);
    assert!(came <= filled, "{came} bytes of {filled}");
    assert!(error == ECONNRESET || (came, error) == (filled, Errno(0)), "{came} bytes of {filled}, then {error:?}");
}

fn both_handed_over() {
    closed_behind_a_full_ring(|writer| _ = writer.call("exec", &[Exec::Execve as u64, 1]));
}

fn closed() {
    closed_behind_a_full_ring(|_| {});
}

/// `before`: what happens to the writer before the reader is handed over.
fn closed_behind_a_full_ring(before: impl FnOnce(&mut Peer)) {
    let (end, mut peer) = small_buffers();
    let filled = peer.call("fill", &[]);
    before(&mut peer);
    let mut receiver = Peer::spawn(Preload::Stripped);
    receiver.hand_over(&end, false, false);
    end.close();
    peer.close();
    expect_all_or_reset(&mut receiver, filled);
}

/// The reader returns to the kernel, which has no room for all that is in the ring.
fn leave_the_ring(end: &End) {
    net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, &1).expect("SO_RCVLOWAT");
}

/// The reader goes on reading after it was told of the reset.
fn nothing_after_reset() {
    let (mut end, mut peer) = small_buffers();
    let filled = peer.call("fill", &[]);
    leave_the_ring(&end);
    peer.close();
    let came = end.rx.whole();
    assert!(came <= filled, "{came} bytes of {filled}");
    assert!(end.rx.ending() == Err(ECONNRESET) || came == filled, "{came} bytes of {filled}");
    end.rx.expect_eof();
    end.rx.expect_eof();
}

/// After shutdown(SHUT_RD) a read says 0 when nothing has arrived, and later bytes can be read all the same.
fn shut_reader() {
    let (mut end, mut peer) = buffers(2 * BUFFER);
    let all = end.rx.at + peer.call("fill", &[]) + 1000;
    net::shutdown(end.fd(), libc::SHUT_RD).expect("shutdown");
    leave_the_ring(&end);
    let mut zeros = 0;
    while zeros < 100 && end.rx.at < all - 1000 {
        zeros += usize::from(end.rx.try_recv(4096, io::read) == Ok(0));
    }
    peer.start("send", &[1000]);
    eventually("all bytes come", || {
        while end.rx.try_recv(1 << 16, io::read).expect("a read") > 0 {}
        end.rx.at >= all
    });
    peer.finish();
    assert_eq!(end.rx.try_recv(4096, io::read), Ok(0));
    assert_eq!(end.rx.at, all);
}

/// A call that only the kernel can serve finds the kernel's buffers full, and returns that error.
fn overtaken() {
    let (mut a, b) = link::own_pair(V4);
    net::set_option(b.fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &BUFFER).expect("SO_RCVBUF");
    net::set_option(a.fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &BUFFER).expect("SO_SNDBUF");
    let filled = a.tx.fill();
    let mut receiver = Peer::spawn(Preload::Stripped);
    receiver.hand_over(&b, true, false);
    b.close();
    assert_eq!(io::send(a.fd(), b"!", libc::MSG_OOB | libc::MSG_DONTWAIT), Err(EAGAIN));
    // With a negative timeout no call waits.
    net::set_timeout(a.fd(), libc::SO_SNDTIMEO, -1000);
    let (clock, _) = measure(|| assert_eq!(io::send(a.fd(), b"!", libc::MSG_OOB), Err(EAGAIN)));
    assert!(clock < Duration::from_secs(1), "the call took {clock:?}");
    net::set_timeout(a.fd(), libc::SO_SNDTIMEO, 0);
    receiver.start("recv", &[filled as u64 + 1000]);
    a.send(1000);
    receiver.finish();
}

/// Less than a large ring, and more than the kernel takes.
const MOST: u64 = 12 << 20;

/// An end that reads 100 bytes by kernel, then more in a ring than the kernel has room for. The writer has closed, and knows that
/// the reader writes nothing. Returns the number of bytes, too.
fn ended_behind_kernel_and_ring() -> (End, u64) {
    let (mut end, mut writer) = link::cold_pair_ends(V4, 1);
    net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &BUFFER).expect("SO_RCVBUF");
    net::set_option(writer.fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &BUFFER).expect("SO_SNDBUF");
    writer.send(100);
    for _ in 0..20 {
        end.send(10);
        writer.recv(10);
        assert_eq!(poll::events_of(end.fd(), libc::POLLIN, 1000), libc::POLLIN);
    }
    while writer.tx.at < MOST && writer.tx.try_send(4096, |fd, buf| io::send(fd, buf, libc::MSG_DONTWAIT)).is_ok() {}
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    writer.rx.expect_eof();
    writer.close();
    (end, writer.tx.at)
}

fn added() {
    let (mut end, all) = ended_behind_kernel_and_ring();
    let set = Epoll::new();
    let (clock, _) = measure(|| set.add(end.fd(), epoll::IN));
    assert!(clock < Duration::from_secs(1), "the call took {clock:?}");
    assert_eq!(end.rx.drain(), all);
    end.rx.expect_eof();
}

/// splice(2) gets all of it, and so it does from a writer that the kernel has no room for at first.
fn spliced() {
    let (mut end, all) = ended_behind_kernel_and_ring();
    let pipe = fds::pipe(libc::O_CLOEXEC);
    loop {
        let n = io::splice(end.fd(), pipe.1, 1 << 16, 0).expect("splice");
        let mut bytes = vec![0; n];
        assert_eq!(io::read(pipe.0, &mut bytes), Ok(n));
        end.rx.arrived(&bytes);
        if n == 0 {
            break;
        }
    }
    assert_eq!(end.rx.at, all);
}

/// A reader that writes nothing more leaves the ring before it has read its bytes. Later ones do not overtake them.
fn half_closed() {
    let (mut end, mut other) = link::own_pair(V4);
    other.send(20_000);
    net::shutdown(end.fd(), libc::SHUT_WR).expect("shutdown");
    end.recv(1000);
    other.send(100);
    leave_the_ring(&end);
    end.recv(19_100);
    other.send(100);
    end.recv(100);
}
