//! Closing: by every call, while another thread is inside a call, twice, and with other descriptors left.

use std::os::fd::RawFd;

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::sys::errno::{EBADF, Errno, Outcome, outcome};
use crate::sys::net::Family::V4;
use crate::sys::only_c::{self, Blocking};
use crate::sys::threads::blocked;
use crate::sys::{Fd, fds, io, net, poll, stdio};
use crate::ways::{receiving, sending};

pub const CASES: &[Case] = &[
    case("close.by_every_call", every_call),
    case("close.then_every_call_says_ebadf", ebadf),
    case("close.twice", twice),
    case("close.close_range_closes_a_stretch", range),
    case("close.close_range_only_marks_for_exec", range_cloexec),
    case("close.close_range_unshares", range_unshare),
    case("close.closefrom_closes_the_rest", from),
    case("close.blocked_reader_stays_with_its_connection", blocked_reader),
    case("close.blocked_reader_and_a_reused_number", reused_under_reader),
    case("close.blocked_reader_is_woken_by_shutdown", shutdown_wakes),
    case("close.blocked_reader_beside_a_cancelled_one", || beside_a_cancelled_reader(false)),
    case("close.blocked_reader_after_a_cancelled_one", || beside_a_cancelled_reader(true)),
    case("close.blocked_reader_is_cancelled_afterwards", cancelled_afterwards),
    case("close.by_a_cancelled_thread_closes_nothing", by_cancelled),
    case("close.blocked_poll_does_not_wake", blocked_poll),
    case("close.while_another_thread_streams", while_streaming).bulk(),
    case("close.while_another_thread_writes", while_writing).bulk(),
    case("close.by_two_threads_at_once", by_two_threads),
    case("close.many_threads_open_and_close", storm),
];

type Close = fn(Fd) -> Outcome;

/// Ways to close a descriptor. The peer must see the end each time.
fn every_call() {
    let ways: [(&str, Close); 8] = [
        ("close", fds::close),
        ("__close", fds::under_close),
        ("syscall", fds::syscall_close),
        ("close_range", |fd| fds::close_range(fd, fd, 0)),
        ("fclose", |fd| stdio::Stream::open(fd, c"r+").close()),
        ("dup2 over it", |fd| fds::dup2(2, fd)),
        ("dup3 over it", |fd| fds::dup3(2, fd, libc::O_CLOEXEC)),
        ("syscall close_range", |fd| {
            // SAFETY: close_range takes two numbers and flags.
            outcome(unsafe { libc::syscall(libc::SYS_close_range, fd, fd, 0) })
        }),
    ];
    for (name, close) in ways {
        let (mut end, mut peer) = link::client(V4);
        end.send(1000);
        close(end.fd()).expect(name);
        peer.recv(1000);
        assert_eq!(peer.call("ending", &[]), 0, "{name}");
    }
}

fn ebadf() {
    let (mut end, mut peer) = link::client(V4);
    // A number that no other file takes while the calls are tried.
    let high = fds::dup2(end.fd(), 700).expect("dup2") as Fd;
    end.close();
    end.moved_to(high);
    end.close();
    let bad: fn(&str, Result<usize, Errno>) = |name, got| assert_eq!(got, Err(EBADF), "{name}");
    // The stream functions report a closed descriptor in other ways, and glibc's aio at another time.
    let direct = |name: &str| !["fread", "fwrite", "aio_read", "aio_write"].contains(&name);
    for (name, call) in receiving::ALL.iter().filter(|way| direct(way.0)) {
        bad(name, end.rx.try_recv(10, *call));
    }
    for (name, call) in sending::ALL.iter().filter(|way| direct(way.0) && way.0 != "dprintf") {
        bad(name, end.tx.try_send(10, *call));
    }
    bad("shutdown", net::shutdown(end.fd(), libc::SHUT_WR));
    bad("accept", net::accept4(end.fd(), 0));
    bad("fcntl", fds::fcntl(end.fd(), libc::F_GETFL, 0));
    bad("setsockopt", net::set_option(end.fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1));
    assert_eq!(fds::ioctl_int(end.fd(), libc::FIONREAD, 0), Err(EBADF));
    assert_eq!(poll::events_of(end.fd(), libc::POLLIN, 0), libc::POLLNVAL);
    assert_eq!(peer.call("ending", &[]), 0);
}

fn twice() {
    let (end, mut peer) = link::client(V4);
    end.close();
    assert_eq!(fds::close(end.fd()), Err(EBADF));
    assert_eq!(fds::syscall_close(end.fd()), Err(EBADF));
    assert_eq!(peer.call("ending", &[]), 0);
}

/// Moves the connections to consecutive numbers from 300 on.
fn in_a_row(pairs: &mut [(End, End)]) {
    for (i, (a, _)) in pairs.iter_mut().enumerate() {
        let number = fds::dup2(a.fd(), 300 + i as RawFd).expect("dup2") as Fd;
        a.close();
        a.moved_to(number);
    }
}

fn numbered_row() -> Vec<(End, End)> {
    let mut pairs: Vec<_> = (0..5).map(|i| link::numbered_pair(V4, i)).collect();
    in_a_row(&mut pairs);
    pairs
}

fn range() {
    let mut pairs = numbered_row();
    assert_eq!(fds::close_range(301, 303, 0), Ok(0));
    for (i, (a, b)) in pairs.iter_mut().enumerate() {
        if (1..=3).contains(&i) {
            b.rx.expect_eof();
            assert_eq!(a.rx.try_recv(1, io::read), Err(EBADF));
        } else {
            link::warm_up_pair(a, b);
        }
    }
}

const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

fn range_cloexec() {
    let mut pairs = numbered_row();
    assert_eq!(fds::close_range(300, 310, CLOSE_RANGE_CLOEXEC), Ok(0));
    for (a, b) in &mut pairs {
        assert_eq!(fds::fcntl(a.fd(), libc::F_GETFD, 0), Ok(libc::FD_CLOEXEC as usize));
        link::warm_up_pair(a, b);
    }
}

/// CLOSE_RANGE_UNSHARE gives the calling thread a descriptor table of its own; the other threads keep theirs.
fn range_unshare() {
    let (mut a, mut b) = link::own_pair(V4);
    let fd = a.fd();
    std::thread::spawn(move || {
        assert_eq!(fds::close_range(fd, fd, CLOSE_RANGE_UNSHARE), Ok(0));
        assert_eq!(io::read(fd, &mut [0]), Err(EBADF), "closed for this thread");
    })
    .join()
    .expect("the thread");
    link::warm_up_pair(&mut a, &mut b);
}

fn from() {
    let mut pairs = numbered_row();
    fds::closefrom(302);
    for (i, (a, b)) in pairs.iter_mut().enumerate() {
        match i {
            0 | 1 => link::warm_up_pair(a, b),
            _ => b.rx.expect_eof(),
        }
    }
}

/// The connection lives until the blocked read is over, and the read gets its bytes.
fn blocked_reader() {
    let (end, mut peer) = link::client(V4);
    let fd = end.fd();
    let reader = blocked(move || {
        let mut buf = vec![0; 50];
        io::recv(fd, &mut buf, libc::MSG_WAITALL).map(|n| buf[..n].to_vec())
    });
    end.close();
    assert!(!fds::is_open(fd));
    peer.send(50);
    end.rx.peeked(&reader.join().expect("the read"));
    assert_eq!(peer.call("ending", &[]), 0, "then the connection ends");
}

fn reused_under_reader() {
    let (end, mut peer) = link::client(V4);
    let fd = end.fd();
    let listener = Listener::new(V4);
    let client = link::connect(&listener.addr(), V4);
    let reader = blocked(move || {
        let mut buf = vec![0; 50];
        io::read(fd, &mut buf).map(|n| buf[..n].to_vec())
    });
    end.close();
    // accept takes the lowest free number, which is the one just closed.
    let accepted = listener.accept();
    assert_eq!(accepted, fd, "the number is used again");
    let mut a = End::numbered(client, Side::Client, 9);
    let mut b = End::numbered(accepted, Side::Server, 9);
    link::warm_up_pair(&mut a, &mut b);
    assert!(!reader.is_finished(), "the reader took bytes of the new connection");
    peer.send(20);
    end.rx.peeked(&reader.join().expect("the read"));
    assert_eq!(peer.call("ending", &[]), 0);
    link::warm_up_pair(&mut a, &mut b);
}

fn shutdown_wakes() {
    let (end, mut peer) = link::client(V4);
    let fd = end.fd();
    let reader = blocked(move || io::read(fd, &mut [0; 10]));
    let poller = blocked(move || poll::events_of(fd, libc::POLLIN, 5000));
    net::shutdown(fd, libc::SHUT_RDWR).expect("shutdown");
    assert_eq!(reader.join(), Ok(0));
    assert_ne!(poller.join() & libc::POLLIN, 0);
    end.close();
    assert_eq!(peer.call("ending", &[]), 0);
}

/// A cancelled thread neither ends the connection for the other threads that are blocked on it, nor keeps it alive after them.
fn beside_a_cancelled_reader(cancelled_first: bool) {
    for _ in 0..5 {
        let (mut end, mut peer) = link::client(V4);
        let fd = end.fd();
        let (tell, told) = std::sync::mpsc::channel();
        let block = || {
            let tell = tell.clone();
            blocked(move || {
                let mut bytes = [0; 10];
                let got = io::read(fd, &mut bytes);
                tell.send((got, bytes)).expect("the case listens");
            })
        };
        let cancel = || only_c::cancel_thread_in(Blocking::Recv, fd);
        if cancelled_first {
            cancel();
        }
        let readers = [block(), block()];
        if !cancelled_first {
            cancel();
        }
        end.close();
        for _ in &readers {
            peer.send(10);
            let (got, bytes) = told.recv_timeout(std::time::Duration::from_secs(5)).expect("a reader gets the bytes");
            assert_eq!(got, Ok(10), "closing a number does not end a call that is blocked on it");
            end.rx.arrived(&bytes);
        }
        readers.into_iter().for_each(|reader| reader.join());
        assert_eq!(peer.call("ending", &[]), 0, "nobody has the connection any more");
    }
}

/// A thread that is blocked on a closed connection is cancelled: that ends the connection. The library ends it as soon as
/// another connection is opened or closed.
fn cancelled_afterwards() {
    let (end, mut peer) = link::client(V4);
    only_c::cancel_thread_after(Blocking::Recv, end.fd(), || end.close());
    let (a, b) = link::cold_pair(V4);
    assert_eq!(peer.call("ending", &[]), 0, "nobody has the connection any more");
    for fd in [a, b] {
        fds::close(fd).expect("close");
    }
}

/// The thread ends in close, before that closes anything.
fn by_cancelled() {
    let (mut end, mut peer) = link::client(V4);
    for _ in 0..3 {
        only_c::cancel_thread_before_close(end.fd());
        assert!(fds::is_open(end.fd()));
        end.send(3000);
        peer.recv(3000);
        peer.send(3000);
        end.recv(3000);
    }
    end.close();
    assert_eq!(peer.call("ending", &[]), 0);
}

/// poll holds the open file description. The close is no event, the peer's bytes are one; after them the descriptor is found
/// to be closed.
fn blocked_poll() {
    let (end, mut peer) = link::client(V4);
    let fd = end.fd();
    let poller = blocked(move || poll::events_of(fd, libc::POLLIN, 5000));
    end.close();
    crate::sys::cpu::sleep_ms(20);
    assert!(!poller.is_finished(), "closing is no event");
    peer.send(10);
    assert_eq!(poller.join(), libc::POLLNVAL);
}

/// The reader gets bytes in order, and then EBADF.
fn while_streaming() {
    for _ in 0..5 {
        let (mut a, mut b) = link::own_pair(V4);
        let fd = b.fd();
        let reader = std::thread::spawn(move || {
            loop {
                match b.rx.try_recv(5000, io::read) {
                    Ok(n) => assert_ne!(n, 0, "the writer has not closed"),
                    Err(e) => return assert_eq!(e, EBADF),
                }
            }
        });
        a.send(300_000);
        assert_eq!(fds::close(fd), Ok(0));
        // Wakes the reader if it sleeps. If no reader is left, the connection is gone, and the send fails.
        let _ = io::send(a.fd(), &a.tx.upcoming(1), libc::MSG_NOSIGNAL);
        reader.join().expect("the reader");
        a.close();
    }
}

/// Bytes that a thread writes around another thread's close arrive in order, or the write fails.
fn while_writing() {
    for round in 0..20 {
        let (mut a, mut b) = link::own_pair(V4);
        let fd = a.fd();
        let writer = std::thread::spawn(move || {
            loop {
                if let Err(e) = a.tx.try_send(100, |fd, buf| io::send(fd, buf, libc::MSG_NOSIGNAL)) {
                    return assert_eq!(e, EBADF);
                }
            }
        });
        b.recv(10_000 + 37 * round);
        assert_eq!(fds::close(fd), Ok(0));
        b.rx.drain();
        writer.join().expect("the writer");
        b.close();
    }
}

/// One of the two threads closes the connection, the other gets EBADF. The connection is counted, and ended, once.
fn by_two_threads() {
    for _ in 0..50 {
        let (a, mut b) = link::own_pair(V4);
        let fd = a.fd();
        let start = std::sync::Barrier::new(2);
        let close = || {
            start.wait();
            fds::close(fd)
        };
        let both = std::thread::scope(|s| [s.spawn(close), s.spawn(close)].map(|t| t.join().expect("a thread")));
        assert!(both == [Ok(0), Err(EBADF)] || both == [Err(EBADF), Ok(0)], "{both:?}");
        b.rx.expect_eof();
        b.close();
    }
}

/// Descriptors are closed and reused all the time; every connection carries its own stream.
fn storm() {
    std::thread::scope(|s| {
        for thread in 0..4 {
            s.spawn(move || {
                for round in 0..30 {
                    let (mut a, mut b) = link::cold_pair_ends(V4, thread * 100 + round);
                    // Every second one lives long enough to be upgraded.
                    if round % 2 == 0 {
                        link::warm_up_pair(&mut a, &mut b);
                    }
                    for n in [1, 500, 20_000] {
                        a.send(n);
                        b.recv(n);
                        b.send(n);
                        a.recv(n);
                    }
                    a.close();
                    b.rx.expect_eof();
                    b.close();
                }
            });
        }
    });
}
