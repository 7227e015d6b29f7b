//! Duplicated descriptors: several numbers for one open file description.

use libc::{F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, FD_CLOEXEC, O_CLOEXEC, SIGUSR1};

use crate::case::{Case, case};
use crate::end::End;
use crate::link;
use crate::sys::errno::{EAGAIN, EBADF, EINTR, EINVAL, Outcome};
use crate::sys::net::Family::V4;
use crate::sys::threads::blocked;
use crate::sys::{Fd, fds, io, net, signal};

pub const CASES: &[Case] = &[
    case("dup.by_every_call", every_call),
    case("dup.same_number_is_untouched", same_number),
    case("dup.close_on_exec_belongs_to_the_number", cloexec),
    case("dup.nonblocking_belongs_to_the_file", shared_nonblock),
    case("dup.shutdown_belongs_to_the_connection", shared_shutdown),
    case("dup.stream_alternates_between_numbers", alternates).bulk(),
    case("dup.threads_use_different_numbers", threads),
    case("dup.last_close_is_the_end", last_close),
    case("dup.over_a_live_socket", over_live),
    case("dup.over_a_live_socket_in_a_copy", over_live_with_copy),
    case("dup.blocked_reader_keeps_the_old_connection", blocked_reader),
    case("dup.blocked_reader_is_sent_away_by_signal", java_close),
    case("dup.of_a_closed_number", closed_number),
    case("dup.made_before_the_first_byte", copied_cold),
    case("dup.made_before_connect", copied_unconnected).never("one of its numbers is not followed"),
];

type Copy = fn(Fd) -> Outcome;

/// `dup2` and `dup3` need a number; these numbers are far from all that the process uses.
const FREE: Fd = 500;

const COPIES: [(&str, Copy); 9] = [
    ("dup", fds::dup),
    ("dup2", |fd| fds::dup2(fd, FREE)),
    ("__dup2", |fd| fds::under_dup2(fd, FREE + 1)),
    ("dup3", |fd| fds::dup3(fd, FREE + 2, O_CLOEXEC)),
    ("F_DUPFD", |fd| fds::fcntl(fd, F_DUPFD, 600)),
    ("F_DUPFD_CLOEXEC", |fd| fds::fcntl(fd, F_DUPFD_CLOEXEC, 600)),
    ("fcntl64", |fd| fds::fcntl64(fd, F_DUPFD, 600)),
    ("__fcntl", |fd| fds::under_fcntl(fd, F_DUPFD, 600)),
    // SAFETY: dup takes one number.
    ("syscall", |fd| crate::sys::errno::outcome(unsafe { libc::syscall(libc::SYS_dup, fd) })),
];

/// Bytes go through the copy, then through the original, and go on after the original is closed.
fn every_call() {
    let (mut end, mut peer) = link::client(V4);
    for (name, copy) in COPIES {
        let original = end.fd();
        let copied = copy(original).unwrap_or_else(|e| panic!("{name}: {e:?}")) as Fd;
        for fd in [copied, original, copied] {
            end.moved_to(fd);
            peer.start("echo", &[3, 500]);
            for _ in 0..3 {
                end.send(500);
                end.recv(500);
            }
            peer.finish();
        }
        fds::close(original).expect("close");
        peer.start("echo", &[1, 500]);
        end.send(500);
        end.recv(500);
        peer.finish();
    }
    end.close();
    assert_eq!(peer.call("ending", &[]), 0);
}

fn same_number() {
    let (mut end, mut peer) = link::client(V4);
    let fd = end.fd();
    assert_eq!(fds::dup2(fd, fd), Ok(fd as usize));
    assert_eq!(fds::dup3(fd, fd, 0), Err(EINVAL));
    peer.send(10);
    end.recv(10);
    link::warm_up(&mut end, &mut peer);
}

fn cloexec() {
    let (end, _peer) = link::client(V4);
    let flag = |fd| fds::fcntl(fd, F_GETFD, 0).expect("F_GETFD") as i32 & FD_CLOEXEC;
    assert_eq!(flag(end.fd()), FD_CLOEXEC, "made so by the case's helper");
    assert_eq!(flag(fds::dup(end.fd()).expect("dup") as Fd), 0);
    assert_eq!(flag(fds::dup3(end.fd(), FREE, O_CLOEXEC).expect("dup3") as Fd), FD_CLOEXEC);
    assert_eq!(flag(fds::dup2(end.fd(), FREE).expect("dup2") as Fd), 0);
    assert_eq!(flag(fds::fcntl(end.fd(), F_DUPFD_CLOEXEC, 0).expect("F_DUPFD_CLOEXEC") as Fd), FD_CLOEXEC);
}

fn shared_nonblock() {
    let (mut end, mut peer) = link::client(V4);
    let original = end.fd();
    let copy = fds::dup(original).expect("dup") as Fd;
    fds::set_nonblocking(copy, true);
    assert!(fds::is_nonblocking(original), "O_NONBLOCK set through the copy");
    assert_eq!(end.rx.try_recv(10, io::read), Err(EAGAIN));
    fds::ioctl_int(original, libc::FIONBIO, 0).expect("FIONBIO");
    assert!(!fds::is_nonblocking(copy));
    end.moved_to(copy);
    peer.after(20).start("send", &[10]);
    assert_eq!(end.rx.try_recv(10, io::read), Ok(10), "blocking again, through the copy");
    peer.finish();
}

fn shared_shutdown() {
    let (mut end, mut peer) = link::client(V4);
    let copy = fds::dup(end.fd()).expect("dup") as Fd;
    net::shutdown(copy, libc::SHUT_WR).expect("shutdown");
    assert_eq!(io::send(end.fd(), b"x", libc::MSG_NOSIGNAL), Err(crate::sys::errno::EPIPE));
    assert_eq!(peer.call("ending", &[]), 0);
    peer.send(100);
    end.recv(100);
}

fn alternates() {
    let (mut end, mut peer) = link::client(V4);
    let names = [end.fd(), fds::dup(end.fd()).expect("dup") as Fd, fds::dup2(end.fd(), FREE).expect("dup2") as Fd];
    peer.start("mixed", &[300_000, 300_000, 3000, 8]);
    for i in 0..300 {
        end.moved_to(names[i % 3]);
        end.send(1000);
        end.moved_to(names[(i + 1) % 3]);
        end.recv(1000);
    }
    peer.finish();
}

fn threads() {
    let (mut a, mut b) = link::own_pair(V4);
    a.rx.fd = fds::dup(a.fd()).expect("dup") as Fd;
    b.rx.fd = fds::fcntl(b.fd(), F_DUPFD, 700).expect("F_DUPFD") as Fd;
    std::thread::scope(|s| {
        s.spawn(|| crate::traffic::both_ways(&mut a, 1 << 20, 1 << 20, 9000, 1));
        crate::traffic::both_ways(&mut b, 1 << 20, 1 << 20, 9000, 2);
    });
}

fn last_close() {
    let (end, mut peer) = link::client(V4);
    let copies: Vec<Fd> = COPIES.iter().map(|(_, copy)| copy(end.fd()).expect("a copy") as Fd).collect();
    end.close();
    peer.start("ending", &[]);
    for fd in copies {
        crate::sys::cpu::sleep_ms(2);
        assert_eq!(fds::close(fd), Ok(0));
    }
    assert_eq!(peer.finish(), 0);
}

/// The connection under the overwritten number ends, and the other connection takes its place.
fn over_live() {
    let (first, mut first_peer) = link::client(V4);
    let (mut a, mut b) = link::numbered_pair(V4, 2);
    first_peer.send(50);
    first.rx.await_bytes(50);
    let number = fds::dup2(a.fd(), first.fd()).expect("dup2") as Fd;
    // It is closed with unread data, so the peer sees a reset.
    assert_eq!(first_peer.call("ending", &[]), libc::ECONNRESET as u64);
    for fd in [number, a.fd(), number] {
        a.moved_to(fd);
        b.send(100);
        a.recv(100);
        a.send(100);
        b.recv(100);
    }
}

fn over_live_with_copy() {
    let (mut first, mut first_peer) = link::client(V4);
    let (mut a, mut b) = link::numbered_pair(V4, 2);
    let kept = fds::dup(first.fd()).expect("dup") as Fd;
    let number = fds::dup3(a.fd(), first.fd(), O_CLOEXEC).expect("dup3") as Fd;
    a.moved_to(number);
    first.moved_to(kept);
    for _ in 0..20 {
        first_peer.start("echo", &[1, 100]);
        first.send(100);
        b.send(70);
        first.recv(100);
        a.recv(70);
        first_peer.finish();
    }
}

/// A blocked read holds the old open file: it gets bytes of the old connection only. After it, the number stands for the new
/// connection.
fn blocked_reader() {
    let (old, mut old_peer) = link::client(V4);
    let (mut a, mut b) = link::numbered_pair(V4, 2);
    let fd = old.fd();
    let reader = blocked(move || {
        let mut buf = vec![0; 100];
        let n = io::read(fd, &mut buf).expect("read");
        buf.truncate(n);
        buf
    });
    fds::dup2(a.fd(), fd).expect("dup2");
    a.close();
    a.moved_to(fd);
    b.send(30);
    a.rx.await_bytes(30);
    assert!(!reader.is_finished(), "the reader took the new connection's bytes");
    old_peer.send(20);
    old.rx.peeked(&reader.join());
    a.recv(30);
}

/// OpenJDK's close: dup2 a dead socket over the descriptor, then signal the threads that are blocked on it.
fn java_close() {
    let (end, mut peer) = link::client(V4);
    signal::count_signal(SIGUSR1, 0);
    let (marker, other) = fds::unix_pair();
    fds::close(other).expect("close");
    let fd = end.fd();
    let reader = blocked(move || (io::read(fd, &mut [0; 10]), io::read(fd, &mut [0; 10])));
    fds::dup2(marker, fd).expect("dup2");
    reader.signal(SIGUSR1);
    assert_eq!(reader.join(), (Err(EINTR), Ok(0)), "woken, and then at the marker's end");
    assert_eq!(peer.call("ending", &[]), 0, "the connection is closed");
    fds::close(fd).expect("close the number");
}

fn closed_number() {
    let (end, _peer) = link::client(V4);
    let fd = end.fd();
    end.close();
    for (name, copy) in COPIES {
        assert_eq!(copy(fd), Err(EBADF), "{name}");
    }
    assert_eq!(fds::dup2(fd, fd), Err(EBADF));
}

/// Both descriptors are of one socket, which is connected by one of them after they were made. All traffic goes through the
/// copies.
fn copied_unconnected() {
    let listener = link::Listener::new(V4);
    let socket = net::socket(V4, libc::SOCK_CLOEXEC);
    let copy = fds::dup(socket).expect("dup") as Fd;
    net::connect(socket, &listener.addr()).expect("connect");
    let mut end = End::new(socket, crate::end::Side::Client);
    let mut peer = End::new(listener.accept(), crate::end::Side::Server);
    link::warm_up_pair(&mut end, &mut peer);
    for _ in 0..5 {
        peer.send(100);
        let mut bytes = [0; 100];
        assert_eq!(io::recv(copy, &mut bytes, libc::MSG_WAITALL), Ok(100));
        end.rx.arrived(&bytes);
        let bytes = end.tx.upcoming(100);
        assert_eq!(io::write(copy, &bytes), Ok(100));
        end.tx.sent(100);
        peer.recv(100);
        peer.send(10);
        end.recv(10);
    }
}

fn copied_cold() {
    let (client, server) = link::cold_pair(V4);
    let copies = [client, server].map(|fd| fds::dup(fd).expect("dup") as Fd);
    [client, server].iter().for_each(|&fd| assert_eq!(fds::close(fd), Ok(0)));
    let mut a = End::new(copies[0], crate::end::Side::Client);
    let mut b = End::new(copies[1], crate::end::Side::Server);
    link::warm_up_pair(&mut a, &mut b);
}
