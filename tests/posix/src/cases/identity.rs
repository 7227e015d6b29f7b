//! Sockets must never be paired that the kernel has not connected to each other.

use crate::case::{Case, case};
use crate::end::{End, Side};
use crate::link::{self, Listener};
use crate::namespace;
use crate::sys::net::Addr;
use crate::sys::net::Family::V4;
use crate::sys::process::{in_child, require_root};
use crate::sys::{Fd, fds, net};

pub const CASES: &[Case] = &[
    case("identity.same_addresses_in_namespaces_of_threads", namespaces_of_threads),
    case("identity.same_addresses_in_namespaces_of_processes", namespaces_of_processes)
        .reason("no-broker")
        .may("a broker at an abstract address is out of sight from another network namespace"),
    case("identity.moved_to_another_namespace_later", moved_later),
    case("identity.port_is_reused_at_once", port_reused),
    case("identity.same_four_numbers_again", same_four_numbers),
    case("identity.many_connections_at_once", many_at_once),
    case("identity.swapped_pairs", swapped),
];

/// Two ports that are free at the moment.
fn free_ports() -> [u16; 2] {
    let listeners = [Listener::new(V4), Listener::new(V4)];
    listeners.each_ref().map(|l| l.port())
}

/// A listener on a fixed port; a client from a fixed port. Returns (client, server).
fn fixed_pair([server_port, client_port]: [u16; 2]) -> (Fd, Fd) {
    let listener = fixed_listener(server_port);
    (connect_from(client_port, &Addr::server(V4, server_port)), listener.accept())
}

fn fixed_listener(port: u16) -> Listener {
    let fd = net::server_socket(V4, libc::SOCK_CLOEXEC);
    net::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1).expect("SO_REUSEADDR");
    net::bind(fd, &Addr::server(V4, port)).expect("bind");
    net::listen(fd, 8).expect("listen");
    Listener { fd, family: V4 }
}

fn connect_from(port: u16, to: &Addr) -> Fd {
    let fd = net::socket(V4, libc::SOCK_CLOEXEC);
    net::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1).expect("SO_REUSEADDR");
    net::bind(fd, &Addr::client(V4, port)).expect("bind");
    net::connect(fd, to).expect("connect");
    fd
}

fn ping_pong(a: &mut End, b: &mut End, rounds: usize) {
    for _ in 0..rounds {
        a.send(100);
        b.recv(100);
        b.send(100);
        a.recv(100);
    }
}

/// The same four numbers (addresses and ports) exist in three namespaces: those of two threads, and the first one. They have
/// traffic at the same time, and the streams must not mix.
fn namespaces_of_threads() {
    require_root();
    let ready = std::sync::Barrier::new(3);
    let ports = free_ports();
    // After this the library has everything that it needs of the first namespace.
    link::own_pair(V4);
    let talk = |number: u64, own: bool| {
        if own {
            namespace::enter_new();
        }
        let (client, server) = fixed_pair(ports);
        let mut a = End::numbered(client, Side::Client, number);
        let mut b = End::numbered(server, Side::Server, number);
        ready.wait();
        link::warm_up_pair(&mut a, &mut b);
        ping_pong(&mut a, &mut b, 2000);
    };
    std::thread::scope(|s| {
        s.spawn(|| talk(1, true));
        s.spawn(|| talk(2, true));
        talk(3, false);
    });
}

/// The same with a process for each end.
fn namespaces_of_processes() {
    require_root();
    let [server_port, client_port] = free_ports();
    let children: Vec<_> = (0..2)
        .map(|number| {
            in_child(move || {
                namespace::enter_new();
                let listener = fixed_listener(server_port);
                let server = in_child(|| {
                    let mut b = End::numbered(listener.accept(), Side::Server, number);
                    for _ in 0..2000 {
                        b.recv(100);
                        b.send(100);
                    }
                });
                let client = connect_from(client_port, &listener.addr());
                let mut a = End::numbered(client, Side::Client, number);
                for _ in 0..2000 {
                    a.send(100);
                    a.recv(100);
                }
                server.succeed();
            })
        })
        .collect();
    children.into_iter().for_each(|c| c.succeed());
}

/// A socket stays in the namespace in which it was made, even if its process moves.
fn moved_later() {
    require_root();
    let (mut end, mut peer) = link::client(V4);
    in_child(|| {
        namespace::enter_new();
        for _ in 0..20 {
            end.send(100);
        }
    })
    .succeed();
    end.tx.sent(2000);
    peer.recv(2000);
    link::warm_up(&mut end, &mut peer);
}

/// A new listener takes the port of one that has just been closed, and clients connect at once.
fn port_reused() {
    let port = Listener::new(V4).port();
    for round in 0..20 {
        let listener = fixed_listener(port);
        let client = link::connect(&listener.addr(), V4);
        let mut a = End::numbered(client, Side::Client, round);
        let mut b = End::numbered(listener.accept(), Side::Server, round);
        drop(listener);
        link::warm_up_pair(&mut a, &mut b);
        b.send(50);
        a.rx.await_bytes(50);
        // Alternately with a reset and regularly.
        if round % 2 == 0 {
            net::set_linger(a.fd(), 0);
        }
        a.close();
        b.close();
    }
}

/// Both ports are fixed, with a reset each time so that the kernel permits it: thirty connections that have only their four
/// numbers in common.
fn same_four_numbers() {
    let ports = free_ports();
    for round in 0..30 {
        let (client, server) = fixed_pair(ports);
        let mut a = End::numbered(client, Side::Client, round);
        let mut b = End::numbered(server, Side::Server, round);
        link::warm_up_pair(&mut a, &mut b);
        b.send(1000);
        a.rx.await_bytes(1000);
        net::set_linger(a.fd(), 0);
        a.close();
        assert_eq!(b.rx.ending(), Err(crate::sys::errno::ECONNRESET));
        b.close();
    }
}

/// All connections are made first, and accepted in any order.
fn many_at_once() {
    let listener = Listener::new(V4);
    let mut clients: Vec<End> =
        (0..40).map(|i| End::numbered(link::connect(&listener.addr(), V4), Side::Client, i)).collect();
    let mut servers: Vec<End> = clients
        .iter()
        .map(|_| {
            let (fd, from) = net::accept(listener.fd);
            let number = clients.iter().position(|c| net::getsockname(c.fd()).port() == from.port());
            End::numbered(fd.expect("accept") as Fd, Side::Server, number.expect("a known client") as u64)
        })
        .collect();
    for _ in 0..50 {
        clients.iter_mut().for_each(|a| a.send(64));
        servers.iter_mut().for_each(|b| b.recv(64));
        servers.iter_mut().rev().for_each(|b| b.send(64));
        clients.iter_mut().for_each(|a| a.recv(64));
    }
}

/// dup2 exchanges the numbers of two connections in mid-stream.
fn swapped() {
    let (mut a, mut b) = link::numbered_pair(V4, 1);
    let (mut c, mut d) = link::numbered_pair(V4, 2);
    for _ in 0..10 {
        let (x, y) = (a.fd(), c.fd());
        let spare = fds::dup(x).expect("dup") as Fd;
        fds::dup2(y, x).expect("dup2");
        fds::dup2(spare, y).expect("dup2");
        fds::close(spare).expect("close");
        a.moved_to(y);
        c.moved_to(x);
        for (left, right) in [(&mut a, &mut b), (&mut c, &mut d)] {
            for _ in 0..10 {
                left.send(99);
                right.recv(99);
                right.send(98);
                left.recv(98);
            }
        }
    }
}
