//! Which connections are spliced and which are not; the latter work as usual.

use super::options::{self, disconnect, refused, set, set_ulp};
use super::stream::{exchange, stream};
use super::world::{End, PORT, World, at_port, listen, pair_in};
use crate::sockets::fresh;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Asserts that everything goes by TCP, for this reason.
fn is_kept_out(world: &World, reason: &str, client: &End, server: &End) {
    let before = world.status();
    assert_eq!((before.reason(reason), before.reason("spliced")), (1, 0), "{:?}", before.reasons);
    exchange(client, server, [100_000, 100_000], 5000, 7);
    let after = world.status();
    assert_eq!((after.redirected.bytes, after.connections), (0, 0));
}

fn non_blocking(protocol: Option<net::Protocol>) -> OwnedFd {
    net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, protocol).unwrap()
}

fn listen_by(socket: OwnedFd, at: SocketAddr) -> TcpListener {
    net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    net::bind(&socket, &at).unwrap();
    net::listen(&socket, 16).unwrap();
    socket.into()
}

#[test]
fn a_client_that_waits_in_its_calls() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = listen(at_port(PORT));
        let client = TcpStream::connect(at_port(PORT)).unwrap();
        is_kept_out(&world, "blocking", &End::new(client), &End::accept(&listener));
    });
}

#[test]
fn a_server_that_waits_in_its_calls() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = TcpListener::bind(at_port(PORT)).unwrap();
        let client = End::connect(at_port(PORT)).unwrap();
        is_kept_out(&world, "blocking", &client, &End::accept(&listener));
    });
}

/// For clients that connect with a timeout and then use blocking reads.
#[test]
fn one_that_waits_in_its_calls_from_now_on_gets_its_bytes_by_tcp() {
    let world = World::new();
    let (mut client, mut server) = world.spliced();
    client.0.set_nonblocking(false).unwrap();
    server.write_all(b"by TCP").unwrap();
    assert_eq!(client.hear(6), b"by TCP");
    assert_eq!((world.reason("blocking"), world.redirected()), (1, 0));
    client.write_all(b"by queue").unwrap();
    assert_eq!(server.hear(8), b"by queue");
    assert_eq!(world.redirected(), 8);
}

#[test]
fn whoever_waits_in_calls_is_spliced_if_that_is_wanted() {
    let world = World::with(|options| options.blocking = true);
    let (client, server) = world.testbed.node.run(|| {
        let listener = TcpListener::bind(at_port(PORT)).unwrap();
        (TcpStream::connect(at_port(PORT)).unwrap(), listener.accept().unwrap().0)
    });
    (&client).write_all(b"hello").unwrap();
    assert_eq!(End::new(server).hear(5), b"hello");
    assert_eq!((world.reason("spliced"), world.redirected()), (1, 5));
}

#[test]
fn multipath_connections() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = listen_by(non_blocking(Some(ipproto::MPTCP)), at_port(PORT));
        let client = End::connect_by(non_blocking(Some(ipproto::MPTCP)), at_port(PORT)).unwrap();
        is_kept_out(&world, "mptcp", &client, &End::accept(&listener));
    });
}

/// As Go makes its listeners: most clients do not use MPTCP.
#[test]
fn an_ordinary_client_of_a_multipath_listener_is_spliced() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = listen_by(non_blocking(Some(ipproto::MPTCP)), at_port(PORT));
        let client = End::connect(at_port(PORT)).unwrap();
        let server = End::accept(&listener);
        exchange(&client, &server, [100_000, 100_000], 5000, 7);
    });
    assert_eq!(world.reason("spliced"), 1);
    assert!(world.redirected() > 0);
}

#[test]
fn who_asks_for_notices_of_zero_copy_writes() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = listen(at_port(PORT));
        let socket = non_blocking(None);
        set(&socket, libc::SOL_SOCKET, options::SO_ZEROCOPY, 1).unwrap();
        let client = End::connect_by(socket, at_port(PORT)).unwrap();
        is_kept_out(&world, "zerocopy", &client, &End::accept(&listener));
    });
}

/// An accepted socket inherits the listener's options.
#[test]
fn who_has_a_low_water_mark() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = listen(at_port(PORT));
        set(&listener, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 10).unwrap();
        let client = End::connect(at_port(PORT)).unwrap();
        is_kept_out(&world, "low-water", &client, &End::accept(&listener));
    });
}

/// After the connection is made, options that splicing cannot support are refused, but only for a spliced socket.
#[test]
fn options_that_come_too_late_are_refused() {
    let world = World::new();
    let (client, server) = world.spliced();
    for end in [&client, &server] {
        assert_eq!(refused(&end.0, libc::SOL_SOCKET, options::SO_ZEROCOPY, 1), Some(libc::EOPNOTSUPP));
        assert_eq!(set_ulp(&end.0, "tls").unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(refused(&end.0, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1), None);
    }
    let (ordinary, _peer) = pair_in(&world.testbed.node, at_port(PORT + 100));
    assert_eq!(refused(&ordinary.0, libc::SOL_SOCKET, options::SO_ZEROCOPY, 1), None);
}

#[test]
fn a_peer_outside_of_the_cgroup() {
    let world = World::new();
    let listener = world.testbed.cgroup.outside(|| world.testbed.node.run(|| listen(at_port(PORT))));
    let client = world.testbed.node.run(|| End::connect(at_port(PORT)).unwrap());
    is_kept_out(&world, "peer-elsewhere", &client, &End::accept(&listener));
}

#[test]
fn namespaces_that_are_not_listed() {
    let mut world = World::new();
    let pod = world.testbed.pod();
    world.options.netns = vec![pod.namespace.run(|| sidestep_ebpf::netns::cookie().unwrap())];
    sidestep_ebpf::splice::install(&world.options).unwrap();
    let (_client, _server) = world.pair();
    assert_eq!(world.reason("spliced"), 0);
    let (_client, _server) = pair_in(&pod.namespace, at_port(PORT));
    assert_eq!(world.reason("spliced"), 1);
}

/// Bytes in the SYN are sent before the client's end is established.
#[test]
fn fast_open() {
    let world = World::new();
    world.testbed.node.run(|| {
        std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").unwrap();
        let listener = listen(at_port(PORT));
        set(&listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, 16).unwrap();
        for round in 0..4 {
            let socket = non_blocking(None);
            set(&socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1).unwrap();
            net::connect(&socket, &at_port(PORT))
                .or_else(|e| if e == rustix::io::Errno::INPROGRESS { Ok(()) } else { Err(e) })
                .unwrap();
            let mut client = End(socket.into());
            client.write_all(b"early").unwrap();
            let mut server = End::accept(&listener);
            assert_eq!(server.hear(5), b"early", "round {round}");
            exchange(&client, &server, [100_000, 100_000], 5000, round);
        }
    });
    assert_eq!(world.reason("missed"), 0);
}

/// With TCP_DEFER_ACCEPT the server's socket is created by the client's first byte.
#[test]
fn deferred_accept_is_too_late() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = listen(at_port(PORT));
        set(&listener, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 5).unwrap();
        let mut client = End::connect(at_port(PORT)).unwrap();
        client.write_all(b"first").unwrap();
        let mut server = End::accept(&listener);
        assert_eq!(server.hear(5), b"first");
        let status = world.status();
        assert_eq!((status.reason("too-early"), status.reason("spliced"), status.redirected.bytes), (1, 0, 0));
        exchange(&client, &server, [100_000, 100_000], 5000, 9);
    });
    assert_eq!(world.redirected(), 0);
}

/// A client that writes at once, on another processor than the handshake, is sometimes earlier than the server's end.
#[test]
fn whoever_is_first_nothing_is_lost() {
    let world = World::new();
    let rounds = 2000;
    world.testbed.node.run(|| {
        let listener = listen(at_port(PORT));
        let first = stream(3, 200);
        for _ in 0..rounds {
            let mut client = End::connect(at_port(PORT)).unwrap();
            first.chunks(20).for_each(|piece| client.write_all(piece).unwrap());
            let mut server = End::accept(&listener);
            assert_eq!(server.hear(200), first);
            server.write_all(&first).unwrap();
            assert_eq!(client.hear(200), first);
            client.reset_at_close();
        }
    });
    let status = world.status();
    println!("{} of {rounds} too early", status.reason("too-early"));
    assert_eq!(status.reason("spliced") + status.reason("too-early"), rounds, "{:?}", status.reasons);
    assert_eq!((status.reason("missed"), status.reason("bypassed"), status.connections), (0, 0, 0));
}

/// Unread bytes of a socket's previous connection do not appear in the next one.
#[test]
fn a_socket_that_is_connected_again() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = listen(at_port(PORT));
        let client = End::connect(at_port(PORT)).unwrap();
        for round in 0..3 {
            let mut server = End::accept(&listener);
            server.write_all(b"left unread").unwrap();
            disconnect(&client);
            assert!(server.write(b"more").is_err(), "round {round}: it has been reset");
            let _ = net::connect(&client.0, &at_port(PORT));
            client.wait(rustix::event::PollFlags::OUT);
            let mut next = End::accept(&listener);
            let mut mine = End(client.0.try_clone().unwrap());
            next.write_all(b"new").unwrap();
            assert_eq!(mine.hear(3), b"new");
            mine.write_all(b"answer").unwrap();
            assert_eq!(next.hear(6), b"answer");
            disconnect(&client);
            let _ = net::connect(&client.0, &at_port(PORT));
            client.wait(rustix::event::PollFlags::OUT);
        }
    });
    let status = world.status();
    assert_eq!(status.reason("missed"), 0, "{:?}", status.reasons);
    assert_eq!(status.reason("spliced"), 7, "{:?}", status.reasons);
}

/// Bytes that were written before accept() are discarded with the listener.
#[test]
fn a_server_that_never_accepts() {
    let world = World::new();
    world.testbed.node.run(|| {
        let listener = listen(at_port(PORT));
        let mut client = End::connect(at_port(PORT)).unwrap();
        client.write_all(b"nobody reads this").unwrap();
        drop(listener);
        std::thread::sleep(Duration::from_millis(20)); // for the reset
        let error = client.write(b"?").unwrap_err();
        assert!([Some(libc::ECONNRESET), Some(libc::EPIPE)].contains(&error.raw_os_error()), "{error}");
    });
    assert_eq!(world.reason("missed"), 0);
    drop(fresh(SocketType::STREAM, false));
}
