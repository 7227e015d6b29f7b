//! Pods with policies about their clients see clients, and not the node.

use super::world::{CLIENT, CLUSTER, Call, INSIDE, NODE, SHORT, World, call, frontends, witness};
use crate::sockets::{at, patient, socket, socket6, until};
use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_reuseaddr, set_socket_timeout};
use rustix::net::{AddressFamily, SocketType, bind, connect};
use sidestep_ebpf::isolated::Isolated;
use sidestep_ebpf::netns::cookie_of;
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_testkit::Pod;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

fn isolated(world: &World) -> Isolated {
    Isolated::open(&world.node.options.pins).unwrap()
}

fn isolate(world: &World, pod: &Pod) {
    let cookie = cookie_of(&pod.namespace.path()).unwrap();
    isolated(world).put(cookie, [pod.v4.into(), pod.v6.into()].into()).unwrap();
}

fn isolate_nobody(world: &World) {
    isolated(world).remove_strangers().unwrap();
}

fn client_of(family: usize) -> IpAddr {
    at(CLIENT[family], 0).ip()
}

#[test]
fn clients_outside_come_as_themselves_to_these_pods_only() {
    let mut world = World::new();
    let (judging, other) = (world.pod(), world.pod());
    let _witnesses = [witness(&judging), witness(&other)];
    world.service(Tcp, &[(&judging, "node"), (&other, "node")], |_| {});
    isolate(&world, &judging);
    for (family, judging) in [judging.v4, judging.v6].into_iter().enumerate() {
        for to in frontends(family).into_iter().chain([at(CLUSTER[family], 80)]) {
            let mut judged = [0; 2];
            for _ in 0..24 {
                let mut found = world.outside.run(|| call(to));
                let is_judged = found.server == judging;
                let expected = if is_judged { client_of(family) } else { at(INSIDE[family], 0).ip() };
                assert_eq!((found.seen, found.stream.get_ref().peer_addr().unwrap()), (expected, to), "{to}");
                found.exchange(10_000);
                judged[usize::from(is_judged)] += 1;
            }
            assert!(judged.iter().all(|count| *count > 0), "{to}: {judged:?}");
        }
    }
    isolate_nobody(&world);
    for _ in 0..12 {
        assert_eq!(world.outside.run(|| call(frontends(0)[0])).seen, at(INSIDE[0], 0).ip());
    }
}

/// It would answer itself directly. Policies do not apply to what a pod sends to itself.
#[test]
fn a_pod_that_reaches_itself_is_masqueraded_all_the_same() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |_| {});
    isolate(&world, &pod);
    // With br_netfilter the bridge itself sends the packet back to its port, as CNI plugins allow it.
    world.node.testbed.node.ip("link set p2 type bridge_slave hairpin on");
    for family in [0, 1] {
        for to in frontends(family) {
            assert_eq!(pod.namespace.run(|| call(to)).seen, at(INSIDE[family], 0).ip(), "{to}");
        }
    }
}

struct Datagrams {
    client: UdpSocket,
    server: UdpSocket,
    to: SocketAddr,
}

impl Datagrams {
    /// Asks and answers once. Returns the client as the server has seen it.
    fn exchange(&self) -> SocketAddr {
        self.client.send_to(b"?", self.to).unwrap();
        let (_, from) = self.server.recv_from(&mut [0; 8]).unwrap();
        self.server.send_to(b"!", from).unwrap();
        assert_eq!(self.client.recv_from(&mut [0; 8]).unwrap(), (1, self.to));
        SocketAddr::new(from.ip().to_canonical(), from.port())
    }
}

/// Each datagram is judged by its source. So a conversation that has begun as the node's does not go on as the node's.
#[test]
fn a_conversation_that_exists_shows_its_client_from_then_on() {
    let mut world = World::new();
    let pod = world.pod();
    let server = pod.namespace.run(|| patient(UdpSocket::bind("[::]:8080").unwrap()));
    world.service(Udp, &[(&pod, "node")], |_| {});
    for family in [0, 1] {
        isolate_nobody(&world);
        let client = world.outside.run(|| if family == 0 { socket() } else { socket6() });
        let port = client.local_addr().unwrap().port();
        let datagrams = Datagrams { client, server: server.try_clone().unwrap(), to: frontends(family)[2] };
        let before = world.node.reason("packet-translated");
        assert_eq!(datagrams.exchange().ip(), at(INSIDE[family], 0).ip());
        isolate(&world, &pod);
        for _ in 0..5 {
            assert_eq!(datagrams.exchange(), SocketAddr::new(client_of(family), port));
        }
        assert_eq!(world.node.reason("packet-translated") - before, 2, "it begins anew once");
    }
}

/// Another socket of the client has the port towards the backend already, so the kernel chooses another one.
#[test]
fn a_conversation_whose_port_was_changed_does_not_begin_anew_with_each_datagram() {
    let mut world = World::new();
    let pod = world.pod();
    let server = pod.namespace.run(|| patient(UdpSocket::bind("[::]:8080").unwrap()));
    world.service(Udp, &[(&pod, "node")], |_| {});
    isolate(&world, &pod);
    for family in [0, 1] {
        let client = world.outside.run(|| if family == 0 { socket() } else { socket6() });
        let before = world.node.reason("packet-translated");
        let mut seen = Vec::new();
        for to in frontends(family) {
            let datagrams = Datagrams { client: client.try_clone().unwrap(), server: server.try_clone().unwrap(), to };
            let found: Vec<SocketAddr> = (0..3).map(|_| datagrams.exchange()).collect();
            assert!(found.iter().all(|one| *one == found[0] && one.ip() == client_of(family)), "{found:?}");
            seen.push(found[0].port());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 3, "each frontend has a port of its own");
        assert_eq!(world.node.reason("packet-translated") - before, 3);
    }
}

/// A connection from this port of the client's, which may have been another one's before.
fn connect_from(port: u16, to: SocketAddr) -> std::io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &at(CLIENT[usize::from(to.is_ipv6())], port))?;
    let socket = TcpStream::from(socket);
    set_socket_timeout(&socket, Timeout::Send, Some(SHORT))?;
    connect(&socket, &to)?;
    Ok(socket)
}

/// The old connection is not this SYN's to end, and the new one must not begin as the node's.
#[test]
fn a_new_connection_does_not_take_the_place_of_one_that_has_begun_as_the_nodes() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |_| {});
    for family in [0, 1] {
        let (to, port) = (frontends(family)[0], 40_000);
        isolate_nobody(&world);
        let old = world.outside.run(|| Call::on(connect_from(port, to).unwrap()));
        assert_eq!(old.seen, at(INSIDE[family], 0).ip());
        isolate(&world, &pod);
        // Nobody hears of its end.
        world.outside.ip("link set eth0 down");
        set_socket_linger(old.stream.get_ref(), Some(Duration::ZERO)).unwrap();
        drop(old);
        world.outside.ip("link set eth0 up");
        world.outside.ip(&format!("route replace default via {}", NODE[0]));
        world.outside.ip(&format!("-6 addr replace {}/64 dev eth0 nodad", CLIENT[1]));
        world.outside.ip(&format!("-6 route replace default via {}", NODE[1]));
        let before = world.node.reason("packet-not-tracked");
        let again = world.outside.run(|| connect_from(port, to));
        assert!(again.is_err(), "{again:?}");
        assert!(world.node.reason("packet-not-tracked") > before, "{family}");
        assert_eq!(world.outside.run(|| call(to)).seen, client_of(family), "another port");
    }
}

/// Its SYN comes again.
#[test]
fn a_connection_that_is_not_complete_begins_anew_as_the_clients() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |_| {});
    let to = frontends(0)[0];
    // Nothing reaches the pod yet.
    let port = |state: &str| world.node.testbed.node.ip(&format!("link set p2 {state}"));
    port("down");
    let before = world.node.reason("packet-translated");
    std::thread::scope(|scope| {
        let outside = &world.outside;
        let called = scope.spawn(move || outside.run(|| call(to)).seen);
        until("the first SYN", || world.node.reason("packet-translated") > before);
        isolate(&world, &pod);
        port("up");
        assert_eq!(called.join().unwrap(), client_of(0));
    });
}
