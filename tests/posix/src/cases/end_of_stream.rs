//! The end of a stream: it is reported once all bytes have been read, and at every read after that.

use libc::{MSG_NOSIGNAL, MSG_PEEK, POLLHUP, POLLIN, SHUT_RD, SHUT_RDWR, SHUT_WR};

use crate::case::{Case, case};
use crate::link::{self, Listener};
use crate::sys::cpu::eventually;
use crate::sys::epoll::{ET, Epoll, IN, RDHUP};
use crate::sys::errno::{EAGAIN, ECONNRESET, ENOTCONN, EPIPE};
use crate::sys::net::Family::{self, V4, V6};
use crate::sys::process::Ended;
use crate::sys::threads::blocked;
use crate::sys::{fds, io, net, poll};
use crate::ways::receiving;

pub const CASES: &[Case] = &[
    case("end.half_close_then_drain_v4", || half_close(V4)).bulk(),
    case("end.half_close_then_drain_v6", || half_close(V6)).bulk(),
    case("end.every_receive_sees_it", every_receive),
    case("end.stays_the_end", stays),
    case("end.answer_after_the_end", answer_after_end).bulk(),
    case("end.never_overtakes_the_data_blocking", || not_overtaking(false)),
    case("end.never_overtakes_the_data_epoll", || not_overtaking(true)),
    case("end.of_a_process_that_exits", || leaving("exit", Ended::Exit(0))),
    case("end.of_a_process_that_exits_at_once", || leaving("exit_now", Ended::Exit(0))),
    case("end.of_a_process_that_aborts", || leaving("abort", Ended::Signal(libc::SIGABRT))),
    case("end.wakes_a_blocked_reader", wakes_reader),
    case("end.wakes_a_blocked_edge_waiter", wakes_edge_waiter),
    case("end.shut_read_side", shut_read_side),
    case("end.shut_both_sides", shut_both),
    case("end.shut_both_with_bytes_of_kernel_and_ring_unread", shut_both_before_the_ring),
    case("end.shutdown_twice_and_unconnected", shutdown_twice),
    case("end.close_with_everything_read_is_no_reset", clean_close),
    case("end.close_behind_bytes_that_came_twice", close_behind_copies),
    case("end.lingering_close_delivers", lingering_close).bulk(),
    case("end.much_data_then_close", much_then_close).bulk(),
];

/// Megabytes, then a half close; the slow reader gets all bytes, then the end.
fn half_close(family: Family) {
    const N: u64 = 6 << 20;
    let (mut end, mut peer) = link::client(family);
    peer.start("send", &[N]);
    end.recv(1000);
    crate::sys::cpu::sleep_ms(20);
    end.recv(N as usize / 2);
    crate::sys::cpu::sleep_ms(20);
    std::thread::scope(|s| {
        let reader = s.spawn(|| end.rx.drain());
        peer.finish();
        peer.shutdown(SHUT_WR);
        assert_eq!(reader.join().expect("the reader"), N - 1000 - N / 2);
    });
    end.send(100_000);
    peer.recv(100_000);
}

fn every_receive() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(100);
    peer.shutdown(SHUT_WR);
    end.recv(100);
    for (name, call) in receiving::ALL {
        assert_eq!(end.rx.try_recv(10, *call), Ok(0), "{name}");
    }
}

fn stays() {
    let (mut end, mut peer) = link::client(V4);
    peer.shutdown(SHUT_WR);
    for _ in 0..5 {
        end.rx.expect_eof();
        assert_eq!(io::recv(end.fd(), &mut [0; 4], MSG_PEEK), Ok(0));
        assert_eq!(io::recv(end.fd(), &mut [0; 4], libc::MSG_DONTWAIT), Ok(0));
        assert_eq!(fds::unread(end.fd()), 0);
        end.send(100);
        peer.recv(100);
    }
}

/// A request with half close, then a long answer.
fn answer_after_end() {
    let (mut end, mut peer) = link::client(V4);
    end.send(5000);
    net::shutdown(end.fd(), SHUT_WR).expect("shutdown");
    assert_eq!(peer.drain(), 5000);
    peer.start("mixed", &[3 << 20, 0, 50_000, 1]);
    end.recv(3 << 20);
    peer.finish();
    peer.close();
    end.rx.expect_eof();
}

/// Many connections: some bytes, then a close at once. The count of bytes must be right.
fn not_overtaking(edge: bool) {
    let (mut warm, mut peer) = link::client(V4);
    let mut rng = crate::rng::Rng::new(crate::rng::run_seed());
    for round in 0..150 {
        let n = rng.size(40_000);
        let (mut a, mut b) = link::cold_pair_ends(V4, round + 1);
        for _ in 0..rng.below(30) {
            a.send(20);
            b.recv(20);
            b.send(20);
            a.recv(20);
        }
        let writer = std::thread::spawn(move || {
            a.send(n);
            a.close();
        });
        let got = if edge { drain_by_edges(&mut b) } else { b.rx.drain() };
        assert_eq!(got, n as u64, "round {round}");
        writer.join().expect("the writer");
        b.close();
    }
    link::warm_up(&mut warm, &mut peer);
}

fn drain_by_edges(end: &mut crate::end::End) -> u64 {
    fds::set_nonblocking(end.fd(), true);
    let set = Epoll::new();
    set.add(end.fd(), IN | RDHUP | ET);
    let start = end.rx.at;
    loop {
        assert_ne!(set.mask_of(end.fd(), 5000), 0, "no edge for the end");
        loop {
            match end.rx.try_recv(3000, io::read) {
                Ok(0) => {
                    fds::close(set.fd).expect("close the set");
                    return end.rx.at - start;
                }
                Ok(_) => {}
                Err(e) => break assert_eq!(e, EAGAIN),
            }
        }
    }
}

/// Bytes that were written before the process ended arrive, then the end.
fn leaving(how: &str, ended: Ended) {
    let (mut end, mut peer) = link::client(V4);
    peer.send(50_000);
    assert_eq!(peer.leave(how), ended);
    assert_eq!(end.rx.drain(), 50_000);
    end.rx.expect_eof();
}

fn wakes_reader() {
    let (end, mut peer) = link::client(V4);
    let fd = end.fd();
    let reader = blocked(move || io::read(fd, &mut [0; 10]));
    peer.shutdown(SHUT_WR);
    assert_eq!(reader.join(), Ok(0));
    let poller = blocked(move || poll::events_of(fd, libc::POLLHUP, 5000));
    net::shutdown(fd, SHUT_WR).expect("shutdown");
    assert_eq!(poller.join(), libc::POLLHUP);
}

fn wakes_edge_waiter() {
    let (mut end, mut peer) = link::client(V4);
    let set = Epoll::new();
    set.add(end.fd(), IN | RDHUP | ET);
    peer.send(10);
    assert_eq!(set.mask_of(end.fd(), 2000), IN);
    end.recv(10);
    let waiter = blocked(move || set.wait(5000));
    peer.close();
    assert_eq!(waiter.join(), [(IN | RDHUP, end.fd() as u64)]);
    end.rx.expect_eof();
}

/// Reading ends at once; bytes that the peer still sends do the peer no harm.
fn shut_read_side() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(100);
    end.rx.await_bytes(100);
    net::shutdown(end.fd(), SHUT_RD).expect("shutdown");
    end.recv(100);
    end.rx.expect_eof();
    let poller = poll::events_of(end.fd(), libc::POLLIN | libc::POLLRDHUP, 1000);
    assert_eq!(poller, libc::POLLIN | libc::POLLRDHUP);
    end.send(3000);
    peer.recv(3000);
    peer.send(100);
}

fn shut_both() {
    let (mut end, mut peer) = link::client(V4);
    end.send(700);
    net::shutdown(end.fd(), SHUT_RDWR).expect("shutdown");
    end.rx.expect_eof();
    assert_eq!(io::send(end.fd(), b"x", MSG_NOSIGNAL), Err(EPIPE));
    assert_eq!(io::writev(end.fd(), b""), Ok(0), "vectors without a byte");
    assert_eq!(io::pwritev2(end.fd(), b"", 0), Ok(0), "vectors without a byte");
    assert_eq!(peer.drain(), 700);
    peer.close();
    assert_eq!(fds::close(end.fd()), Ok(0));
}

/// Bytes that had arrived when their reader shut both ways can be read, whichever carrier has them. Later bytes are answered by
/// a reset: the first write succeeds, the next one does not.
fn shut_both_before_the_ring() {
    let ways: [&[i32]; 3] = [&[SHUT_RDWR], &[SHUT_WR, SHUT_RD], &[SHUT_RD, SHUT_WR]];
    for round in 0..12 {
        let (mut end, mut other) = link::cold_pair_ends(V4, round);
        other.send(100);
        for _ in 0..20 {
            end.send(10);
            other.recv(10);
            assert_eq!(poll::events_of(end.fd(), POLLIN, 1000), POLLIN);
        }
        for _ in 0..5 {
            other.send(40);
        }
        end.rx.await_bytes(300);
        let read_before = [0, 60, 100, 130][round as usize % 4];
        end.recv(read_before);
        for how in ways[round as usize % 3] {
            net::shutdown(end.fd(), *how).expect("shutdown");
        }
        let hang_up = || poll::events_of(other.fd(), 0, 0) & POLLHUP != 0;
        assert!(!hang_up(), "round {round}: a reset before anything was written");
        assert_eq!(io::send(other.fd(), &[0; 8], MSG_NOSIGNAL), Ok(8), "round {round}: the first write");
        eventually("the reset comes", hang_up);
        assert_eq!(io::send(other.fd(), &[0; 8], MSG_NOSIGNAL), Err(EPIPE), "round {round}: the next one");
        end.recv(300 - read_before);
        assert_eq!(end.rx.ending(), Err(ECONNRESET), "round {round}: after all bytes");
        assert_eq!(end.rx.ending(), Ok(()), "round {round}: told once");
        end.close();
        other.close();
    }
}

fn shutdown_twice() {
    let (end, mut peer) = link::client(V4);
    assert_eq!(net::shutdown(end.fd(), SHUT_WR), Ok(0));
    assert_eq!(net::shutdown(end.fd(), SHUT_WR), Ok(0));
    assert_eq!(peer.call("ending", &[]), 0);
    assert_eq!(net::shutdown(end.fd(), 99), Err(crate::sys::errno::EINVAL));
    let fresh = net::socket(V4, 0);
    assert_eq!(net::shutdown(fresh, SHUT_WR), Err(ENOTCONN));
    let listener = Listener::new(V4);
    assert_eq!(io::read(listener.fd, &mut [0]), Err(ENOTCONN));
}

/// The writer goes back to the kernel, and also sends the unread bytes of the ring there, while the reader reads the ring. If
/// the reader has read them from the ring, it has read everything, whenever the copies come.
fn close_behind_copies() {
    for i in 0..400 {
        let (mut end, mut other) = link::own_pair(V4);
        other.send(20_000);
        let (reads, writer) = (i % 20 * 1000, other.fd());
        end.recv(reads);
        let changes = std::thread::spawn(move || {
            let no_time = poll::timespec_ms(0);
            // SAFETY: no message, and a time that lives. The kernel serves calls with a timeout.
            unsafe { libc::recvmmsg(writer, std::ptr::null_mut(), 1, 0, &raw const no_time as *mut _) }
        });
        end.recv(20_000 - reads);
        end.close();
        assert!(changes.join().expect("the writer") <= 0);
        other.rx.expect_eof();
    }
}

fn clean_close() {
    let (mut end, mut peer) = link::client(V4);
    peer.send(1000);
    end.recv(1000);
    end.close();
    assert_eq!(peer.call("ending", &[]), 0);
}

/// SO_LINGER with a time: close waits until the peer's kernel has all bytes.
fn lingering_close() {
    let (mut end, mut peer) = link::client(V4);
    net::set_linger(end.fd(), 5);
    peer.after(50).start("drain", &[]);
    end.send(3 << 20);
    end.close();
    assert_eq!(peer.finish(), 3 << 20);
}

/// Everything that fits is written, then the connection is closed; the reader starts only then.
fn much_then_close() {
    let (mut end, mut peer) = link::client(V4);
    let filled = end.tx.fill() as u64;
    end.close();
    assert_eq!(peer.drain(), filled);
    let (mut end, mut other) = link::server(V4);
    let filled = other.call("fill", &[]);
    assert_eq!(other.leave("exit_now"), Ended::Exit(0));
    assert_eq!(end.rx.drain(), filled);
}
