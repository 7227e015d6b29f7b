//! Making connections: the library must never wait for the peer's code to run.

use libc::{IPPROTO_TCP, MSG_FASTOPEN, SOCK_CLOEXEC, SOCK_NONBLOCK};

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::sys::cpu::measure;
use crate::sys::epoll::{Epoll, HUP, IN};
use crate::sys::errno::{
    EADDRINUSE, EAGAIN, ECONNREFUSED, ECONNRESET, EINPROGRESS, EINVAL, EISCONN, ENOTSOCK, EPIPE, outcome,
};
use crate::sys::net::Addr;
use crate::sys::net::Family::{self, V4, V6};
use crate::sys::process::in_child;
use crate::sys::{Fd, fds, files, io, net, poll};

pub const CASES: &[Case] = &[
    case("connect.without_accept_v4", || without_accept(V4)),
    case("connect.without_accept_v6", || without_accept(V6)),
    case("connect.never_accepted", never_accepted).never("nobody accepts it"),
    case("connect.full_backlog", full_backlog),
    case("connect.defer_accept", defer_accept),
    case("connect.by_sendto_fastopen", by_fastopen)
        .reason("peer-absent")
        .may("the connection is made without connect()"),
    case("connect.by_alias_and_syscall", by_other_calls),
    case("connect.from_a_bound_port", from_bound_port),
    case("connect.from_another_loopback_address", from_other_address),
    case("connect.v6_socket_to_v4_listener", mapped),
    case("connect.dual_stack_listener", dual_stack),
    case("connect.to_itself_in_one_thread", to_itself).bulk(),
    case("connect.socket_is_its_own_peer", own_peer).may("both ends are one socket"),
    case("connect.disconnected_and_connected_again", disconnected).reason("short"),
    case("connect.disconnected_with_a_copy", disconnected_with_a_copy).reason("dup"),
    case("connect.disconnected_and_connected_again_in_a_set", disconnected_in_a_set),
    case("connect.accept_in_every_way", accept_ways).reason("never-waited"),
    case("connect.accept_waits_and_wakes", accept_waits),
    case("connect.two_listeners_on_one_port", reuseport),
    case("connect.data_before_accept_from_a_gone_client", gone_before_accept)
        .may("the client is gone before its connection is accepted"),
    case("connect.errors", errors).no_connection(),
];

/// Connect, write and half close, all before anybody accepts.
fn without_accept(family: Family) {
    let listener = Listener::new(family);
    let fd = link::connect(&listener.addr(), family);
    let mut a = End::new(fd, Side::Client);
    a.send(5000);
    a.send(1);
    let mut b = End::new(listener.accept(), Side::Server);
    b.recv(5001);
    link::warm_up_pair(&mut a, &mut b);
    a.send(300);
    net::shutdown(fd, libc::SHUT_WR).expect("shutdown");
    assert_eq!(b.rx.drain(), 300);
}

/// Everything works by kernel alone; written bytes stay in its buffers.
fn never_accepted() {
    let listener = Listener::new(V4);
    let fd = link::connect(&listener.addr(), V4);
    let mut end = End::new(fd, Side::Client);
    for _ in 0..100 {
        end.send(100);
    }
    assert_eq!(io::recv(fd, &mut [0], libc::MSG_DONTWAIT), Err(EAGAIN));
    assert_eq!(poll::events_of(fd, libc::POLLIN, 30), 0);
    drop(listener);
    poll::events_of(fd, libc::POLLIN, 5000);
    assert_eq!(end.rx.ending(), Err(ECONNRESET));
}

/// More clients than fit into the backlog; they are served one by one.
fn full_backlog() {
    let listener = Listener::with(V4, 0, 1);
    let clients: Vec<Fd> = (0..2).map(|_| link::connect(&listener.addr(), V4)).collect();
    let late = net::socket(V4, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_eq!(net::connect(late, &listener.addr()), Err(EINPROGRESS));
    for (i, client) in clients.into_iter().enumerate() {
        let mut a = End::numbered(client, Side::Client, i as u64);
        let mut b = End::numbered(listener.accept(), Side::Server, i as u64);
        link::warm_up_pair(&mut a, &mut b);
    }
    // The kernel tries again after a second.
    assert_eq!(poll::events_of(late, libc::POLLOUT, 8000), libc::POLLOUT);
    let mut a = End::new(late, Side::Client);
    let mut b = End::new(listener.accept(), Side::Server);
    link::warm_up_pair(&mut a, &mut b);
}

/// The connection is accepted only when its first bytes are there.
fn defer_accept() {
    let listener = Listener::with(V4, SOCK_NONBLOCK, 8);
    net::set_option(listener.fd, IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &5).expect("TCP_DEFER_ACCEPT");
    let mut a = End::new(link::connect(&listener.addr(), V4), Side::Client);
    assert_eq!(net::accept4(listener.fd, 0), Err(EAGAIN));
    a.send(40);
    assert_eq!(poll::events_of(listener.fd, libc::POLLIN, 3000), libc::POLLIN);
    let mut b = End::new(net::accept4(listener.fd, 0).expect("accept4") as Fd, Side::Server);
    b.recv(40);
    link::warm_up_pair(&mut a, &mut b);
}

/// A send that connects (TCP Fast Open).
fn by_fastopen() {
    let listener = Listener::new(V4);
    let fd = net::socket(V4, SOCK_CLOEXEC);
    let mut a = End::new(fd, Side::Client);
    let bytes = a.tx.upcoming(100);
    assert_eq!(io::sendto_addr(fd, &bytes, MSG_FASTOPEN, &listener.addr()), Ok(100));
    a.tx.sent(100);
    let mut b = End::new(listener.accept(), Side::Server);
    b.recv(100);
    link::warm_up_pair(&mut a, &mut b);
}

fn by_other_calls() {
    let by_syscall = |fd: Fd, addr: &Addr| {
        // SAFETY: pointer and length describe a live address.
        outcome(unsafe { libc::syscall(libc::SYS_connect, fd, addr.as_ptr(), addr.size()) })
    };
    let listener = Listener::new(V4);
    for (i, connect) in [net::under_connect, by_syscall].into_iter().enumerate() {
        let fd = net::socket(V4, SOCK_CLOEXEC);
        connect(fd, &listener.addr()).expect("connect");
        // SAFETY: null asks for no address.
        let server = outcome(unsafe { libc::syscall(libc::SYS_accept4, listener.fd, 0usize, 0usize, 0) });
        let mut a = End::numbered(fd, Side::Client, i as u64);
        let mut b = End::numbered(server.expect("accept4") as Fd, Side::Server, i as u64);
        link::warm_up_pair(&mut a, &mut b);
    }
}

fn from_bound_port() {
    let listener = Listener::new(V4);
    let fd = net::socket(V4, SOCK_CLOEXEC);
    net::bind(fd, &Addr::client(V4, 0)).expect("bind");
    let port = net::getsockname(fd).port();
    net::connect(fd, &listener.addr()).expect("connect");
    let (server, from) = net::accept(listener.fd);
    assert_eq!(from.port(), port);
    let mut a = End::new(fd, Side::Client);
    let mut b = End::new(server.expect("accept") as Fd, Side::Server);
    link::warm_up_pair(&mut a, &mut b);
    let second = net::socket(V4, 0);
    assert_eq!(net::bind(second, &Addr::client(V4, port)), Err(EADDRINUSE));
}

/// The two addresses of the connection differ.
fn from_other_address() {
    let listener = Listener::new(V4);
    let fd = net::socket(V4, SOCK_CLOEXEC);
    net::bind(fd, &Addr::other_client(0)).expect("bind");
    net::connect(fd, &listener.addr()).expect("connect");
    let mut a = End::new(fd, Side::Client);
    let mut b = End::new(listener.accept(), Side::Server);
    link::warm_up_pair(&mut a, &mut b);
}

/// One end has the address ::ffff:a.b.c.d, the other a.b.c.d.
fn mapped() {
    let listener = Listener::new(V4);
    let fd = net::socket(V6, SOCK_CLOEXEC);
    net::connect(fd, &Addr::mapped_server(listener.port())).expect("connect");
    let mut a = End::new(fd, Side::Client);
    let mut b = End::new(listener.accept(), Side::Server);
    link::warm_up_pair(&mut a, &mut b);
}

fn dual_stack() {
    let fd = net::server_socket(V6, SOCK_CLOEXEC);
    net::bind(fd, &Addr::v6(std::net::Ipv6Addr::UNSPECIFIED, 0)).expect("bind");
    net::listen(fd, 8).expect("listen");
    let listener = Listener { fd, family: V6 };
    for (i, family) in [V4, V6].into_iter().enumerate() {
        let client = link::connect(&Addr::server(family, listener.port()), family);
        let mut a = End::numbered(client, Side::Client, i as u64);
        let mut b = End::numbered(listener.accept(), Side::Server, i as u64);
        link::warm_up_pair(&mut a, &mut b);
    }
}

/// One thread connects, accepts, and moves data through a poll loop.
fn to_itself() {
    let listener = Listener::with(V4, SOCK_NONBLOCK, 8);
    let fd = net::socket(V4, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_eq!(net::connect(fd, &listener.addr()), Err(EINPROGRESS));
    assert_eq!(poll::events_of(listener.fd, libc::POLLIN, 3000), libc::POLLIN);
    let server = net::accept4(listener.fd, SOCK_NONBLOCK).expect("accept4") as Fd;
    let (mut a, mut b) = (End::new(fd, Side::Client), End::new(server, Side::Server));
    poll::events_of(fd, libc::POLLOUT, 3000);
    poll::events_of(server, libc::POLLOUT, 3000);
    link::warm_up_pair(&mut a, &mut b);
    let goal = 2 << 20;
    while b.rx.at < goal {
        let mut fds = [poll::want(fd, libc::POLLOUT), poll::want(server, libc::POLLIN)];
        poll::poll(&mut fds, 5000).expect("poll");
        if fds[0].revents & libc::POLLOUT != 0 && a.tx.at < goal {
            a.tx.try_send(10_000.min((goal - a.tx.at) as usize), io::write).expect("writable");
        }
        if fds[1].revents & libc::POLLIN != 0 {
            b.rx.try_recv(7000, io::read).expect("readable");
        }
    }
}

/// Bound to a port and connected to the same port: one socket is both ends.
fn own_peer() {
    let fd = net::socket(V4, SOCK_CLOEXEC);
    net::bind(fd, &Addr::client(V4, 0)).expect("bind");
    net::connect(fd, &net::getsockname(fd)).expect("connect to itself");
    net::set_nodelay(fd);
    let mut text = *b"to myself";
    for _ in 0..100 {
        assert_eq!(io::write(fd, b"to myself"), Ok(9));
        text.fill(0);
        assert_eq!(io::recv(fd, &mut text, libc::MSG_WAITALL), Ok(9));
        assert_eq!(&text, b"to myself");
    }
    net::shutdown(fd, libc::SHUT_WR).expect("shutdown");
    assert_eq!(io::read(fd, &mut text), Ok(0));
}

/// connect(AF_UNSPEC) ends a connection and makes the socket ready for another one.
fn disconnected() {
    let listener = Listener::new(V4);
    let fd = link::connect(&listener.addr(), V4);
    for round in 0..3 {
        let mut a = End::numbered(fd, Side::Client, round);
        let mut b = End::numbered(listener.accept(), Side::Server, round);
        link::warm_up_pair(&mut a, &mut b);
        assert_eq!(net::connect(fd, &Addr::empty()), Ok(0));
        assert_eq!(b.rx.ending(), Err(ECONNRESET));
        assert_eq!(io::send(fd, b"x", libc::MSG_NOSIGNAL), Err(ECONNRESET), "our own reset");
        assert_eq!(io::send(fd, b"x", libc::MSG_NOSIGNAL), Err(EPIPE));
        b.close();
        net::connect(fd, &listener.addr()).expect("connect again");
    }
}

/// If one descriptor of a socket dissolves and renews the connection, so do the others.
fn disconnected_with_a_copy() {
    let listener = Listener::new(V4);
    let fd = link::connect(&listener.addr(), V4);
    let copy = fds::dup(fd).expect("dup") as Fd;
    for round in 0..3 {
        let mut a = End::numbered(fd, Side::Client, round);
        let mut b = End::numbered(listener.accept(), Side::Server, round);
        link::warm_up_pair(&mut a, &mut b);
        b.send(100);
        let mut bytes = [0; 100];
        assert_eq!(io::recv(copy, &mut bytes, libc::MSG_WAITALL), Ok(100));
        a.rx.arrived(&bytes);
        assert_eq!(net::connect(copy, &Addr::empty()), Ok(0));
        assert_eq!(b.rx.ending(), Err(ECONNRESET));
        assert_eq!(io::send(copy, b"x", libc::MSG_NOSIGNAL), Err(ECONNRESET), "our own reset");
        assert_eq!(io::send(fd, b"x", libc::MSG_NOSIGNAL), Err(EPIPE));
        b.close();
        net::connect(fd, &listener.addr()).expect("connect again");
    }
}

/// The descriptor stays in its epoll set, and is registered there for the next connection as well.
fn disconnected_in_a_set() {
    let listener = Listener::new(V4);
    let (fd, set) = (link::connect(&listener.addr(), V4), Epoll::new());
    set.add(fd, IN);
    for round in 0..3 {
        let mut a = End::numbered(fd, Side::Client, round);
        let mut b = End::numbered(listener.accept(), Side::Server, round);
        assert_eq!(set.mask_of(fd, 0), 0);
        link::warm_up_pair(&mut a, &mut b);
        for _ in 0..3 {
            b.send(10);
            assert_eq!(set.mask_of(fd, 2000), IN, "round {round}");
            a.recv(10);
        }
        assert_eq!(net::connect(fd, &Addr::empty()), Ok(0));
        assert_ne!(set.mask_of(fd, 2000) & HUP, 0, "a socket without a peer");
        b.close();
        net::connect(fd, &listener.addr()).expect("connect again");
    }
}

fn accept_ways() {
    let listener = Listener::new(V4);
    let ways: [fn(Fd) -> Fd; 4] = [
        |fd| net::accept(fd).0.expect("accept") as Fd,
        |fd| net::accept4(fd, 0).expect("accept4") as Fd,
        |fd| net::accept4(fd, SOCK_CLOEXEC | SOCK_NONBLOCK).expect("accept4") as Fd,
        |fd| {
            // SAFETY: null asks for no address.
            let ret = unsafe { libc::syscall(libc::SYS_accept, fd, 0usize, 0usize) };
            outcome(ret).expect("accept") as Fd
        },
    ];
    for (i, accept) in ways.into_iter().enumerate() {
        let mut a = End::numbered(link::connect(&listener.addr(), V4), Side::Client, i as u64);
        let mut b = End::numbered(accept(listener.fd), Side::Server, i as u64);
        link::warm_up_pair(&mut a, &mut b);
    }
}

fn accept_waits() {
    let listener = Listener::new(V4);
    let addr = listener.addr();
    let child = in_child(|| {
        crate::sys::cpu::sleep_ms(30);
        let mut a = End::new(link::connect(&addr, V4), Side::Client);
        link::warm_asking(&mut a);
    });
    let mut server = -1;
    let (clock, _) = measure(|| server = listener.accept());
    assert!(clock.as_millis() >= 15, "accept did not wait");
    let mut b = End::new(server, Side::Server);
    link::warm_answering(&mut b);
    child.succeed();
    net::set_timeout(listener.fd, libc::SO_RCVTIMEO, 40);
    assert_eq!(net::accept4(listener.fd, 0), Err(EAGAIN), "accept obeys SO_RCVTIMEO");
}

/// SO_REUSEPORT: the kernel distributes the connections over two processes.
fn reuseport() {
    let open = |port| {
        let fd = net::server_socket(V4, SOCK_CLOEXEC);
        net::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1).expect("SO_REUSEPORT");
        net::bind(fd, &Addr::server(V4, port)).expect("bind");
        net::listen(fd, 32).expect("listen");
        Listener { fd, family: V4 }
    };
    let first = open(0);
    let second = open(first.port());
    let mut clients: Vec<End> =
        (0..12).map(|i| End::numbered(link::connect(&first.addr(), V4), Side::Client, i)).collect();
    let mut served = 0;
    for listener in [&first, &second] {
        fds::set_nonblocking(listener.fd, true);
        while let (Ok(fd), from) = net::accept(listener.fd) {
            let number = clients.iter().position(|c| net::getsockname(c.fd()).port() == from.port());
            let number = number.expect("a connection that nobody made");
            let mut b = End::numbered(fd as Fd, Side::Server, number as u64);
            link::warm_up_pair(&mut clients[number], &mut b);
            served += 1;
        }
    }
    assert_eq!(served, 12);
}

/// The client has connected, written and closed; its bytes are there for the accepting process.
fn gone_before_accept() {
    let listener = Listener::new(V4);
    let addr = listener.addr();
    in_child(|| {
        let mut a = End::new(link::connect(&addr, V4), Side::Client);
        a.send(4000);
        a.close();
    })
    .succeed();
    let mut b = End::new(listener.accept(), Side::Server);
    assert_eq!(b.rx.drain(), 4000);
}

fn errors() {
    let listener = Listener::new(V4);
    let port = listener.port();
    drop(listener);
    let fd = net::socket(V4, 0);
    assert_eq!(net::connect(fd, &Addr::server(V4, port)), Err(ECONNREFUSED));
    assert_eq!(net::connect(files::dev_null(), &Addr::server(V4, port)), Err(ENOTSOCK));
    assert_eq!(net::accept4(fd, 0), Err(EINVAL), "not listening");
    assert_eq!(net::accept4(files::dev_null(), 0), Err(ENOTSOCK));
    let listener = Listener::new(V4);
    assert_eq!(net::accept4(listener.fd, 0x7), Err(EINVAL), "unknown flags");
    assert_eq!(net::connect(listener.fd, &listener.addr()), Err(EISCONN));
}
