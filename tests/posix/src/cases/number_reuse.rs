//! The number of a closed connection becomes something else: nothing of the connection may appear there.

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link;
use crate::sys::errno::EAGAIN;
use crate::sys::net::Family::V4;
use crate::sys::{Fd, epoll, fds, files, io, net, stdio};

macro_rules! reuse_cases {
    ($($close:ident)*) => { &[$(
        case(concat!("reuse.after_", stringify!($close)), || reused($close)),
    )*
        case("reuse.socket_after_socket", socket_after_socket),
        case("reuse.by_a_listener", by_a_listener),
        case("reuse.closed_sockets_leave_an_epoll_set", closed_in_set).may("closed before the broker has seen them"),
    ] };
}

pub const CASES: &[Case] = reuse_cases! { close syscall_close close_range closefrom fclose dup2 };

fn close(fd: Fd) {
    fds::close(fd).expect("close");
}

fn syscall_close(fd: Fd) {
    fds::syscall_close(fd).expect("syscall(SYS_close)");
}

fn close_range(fd: Fd) {
    fds::close_range(fd, fd + 5, 0).expect("close_range");
}

fn closefrom(fd: Fd) {
    fds::closefrom(fd);
}

fn fclose(fd: Fd) {
    stdio::Stream::open(fd, c"r").close().expect("fclose");
}

/// Overwritten by a file, which is then closed by close(2).
fn dup2(fd: Fd) {
    fds::dup2(2, fd).expect("dup2");
    fds::close(fd).expect("close");
}

/// A connection under a high number, with unread data on both sides when it is closed.
fn doomed() -> Fd {
    let (mut a, mut b) = link::own_pair(V4);
    a.send(3000);
    b.send(3000);
    a.rx.await_bytes(3000);
    let high = fds::dup2(a.fd(), 400).expect("dup2") as Fd;
    a.close();
    high
}

fn reused(close: fn(Fd)) {
    for take in [by_pipe, by_file, by_unix_socket, by_connection] {
        let fd = doomed();
        close(fd);
        assert!(!fds::is_open(fd));
        take(fd);
        fds::close(fd).expect("close");
    }
}

/// No event of a closed socket may appear under a number that is in use again, even if another process looks at the sockets.
fn closed_in_set() {
    let set = epoll::Epoll::new();
    for round in 0..500 {
        let (a, b) = link::cold_pair(V4);
        for fd in [a, b] {
            set.add(fd, epoll::IN | epoll::RDHUP);
        }
        assert_eq!(io::write(a, b"x"), Ok(1));
        assert_eq!(io::read(b, &mut [0; 10]), Ok(1));
        close(a);
        close(b);
        assert_eq!(set.wait(0).len(), 0, "an event of a closed socket in round {round}");
    }
}

fn at(fd: Fd, new: Fd) {
    fds::dup2(new, fd).expect("dup2");
    fds::close(new).expect("close");
}

fn by_pipe(fd: Fd) {
    let (read, write) = fds::pipe(libc::O_CLOEXEC | libc::O_NONBLOCK);
    at(fd, read);
    assert_eq!(io::read(fd, &mut [0; 100]), Err(EAGAIN), "an empty pipe");
    assert_eq!(io::write(write, b"pipe"), Ok(4));
    assert_eq!(fds::unread(fd), 4);
    let mut buf = [0; 100];
    assert_eq!(io::read(fd, &mut buf), Ok(4));
    assert_eq!(&buf[..4], b"pipe");
    fds::close(write).expect("close");
}

fn by_file(fd: Fd) {
    at(fd, files::holding(b"contents of a file"));
    let mut buf = [0; 8];
    assert_eq!(io::read(fd, &mut buf), Ok(8));
    assert_eq!(&buf, b"contents");
    assert_eq!(io::write(fd, b" IN"), Ok(3));
    assert_eq!(files::contents(fd), b"contents IN a file");
}

fn by_unix_socket(fd: Fd) {
    let (ours, theirs) = fds::unix_pair();
    at(fd, ours);
    assert_eq!(io::recv(fd, &mut [0; 10], libc::MSG_DONTWAIT), Err(EAGAIN));
    assert_eq!(io::send(fd, b"unix", 0), Ok(4));
    assert_eq!(io::recv(theirs, &mut [0; 10], 0), Ok(4));
    fds::close(theirs).expect("close");
}

fn by_connection(fd: Fd) {
    let (mut a, mut b) = link::numbered_pair(V4, 11);
    at(fd, a.fd());
    a.moved_to(fd);
    assert_eq!(fds::unread(fd), 0);
    for _ in 0..5 {
        link::warm_up_pair(&mut a, &mut b);
    }
    b.close();
    a.rx.expect_eof();
}

/// One number, forty connections in turn, each closed by the call that libuv uses.
fn socket_after_socket() {
    let listener = link::Listener::new(V4);
    let mut last = -1;
    for round in 0..40 {
        let client = link::connect(&listener.addr(), V4);
        let server = listener.accept();
        assert!(last == -1 || last == client, "the kernel gives the lowest free number");
        last = client;
        let mut a = End::numbered(client, Side::Client, round);
        let mut b = End::numbered(server, Side::Server, round);
        link::warm_up_pair(&mut a, &mut b);
        b.send(7);
        a.rx.await_bytes(7);
        fds::syscall_close(client).expect("close");
        assert_eq!(b.rx.ending(), Err(crate::sys::errno::ECONNRESET), "closed with unread data");
        fds::syscall_close(server).expect("close");
    }
}

fn by_a_listener() {
    let (mut a, b) = link::own_pair(V4);
    a.send(10);
    let fd = b.fd();
    fds::syscall_close(fd).expect("close");
    let mut listener = link::Listener::new(V4);
    at(fd, listener.fd);
    listener.fd = fd;
    assert_eq!(fds::unread(a.fd()), 0);
    let client = link::connect(&listener.addr(), V4);
    let mut end = End::numbered(client, Side::Client, 1);
    let mut other = End::numbered(listener.accept(), Side::Server, 1);
    link::warm_up_pair(&mut end, &mut other);
    assert_eq!(net::int_option(listener.fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN), 1);
}
