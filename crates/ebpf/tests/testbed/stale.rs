//! Connected UDP sockets whose backend has gone: exactly these get another one, or are aborted, in any namespace.

use crate::node::{Node, ready, slice};
use crate::sockets::{ask, at, echo, fresh, hear, mapped, patient, peer};
use rustix::io::Errno;
use rustix::net::{SocketType, connect, connect_unspec};
use sidestep_ebpf::reclaim::Reclaimed;
use sidestep_mesh::address::Protocol::Udp;
use sidestep_mesh::object::{Object, SliceEndpoint};
use sidestep_mesh::state::Change;
use sidestep_testkit::Pod;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

const VIP: &str = "10.96.0.1";
const VIP6: &str = "fd00:96::1";

fn connected(pod: &Pod, to: SocketAddr) -> UdpSocket {
    pod.namespace.run(|| {
        let socket = patient(UdpSocket::from(fresh(SocketType::DGRAM, to.is_ipv6())));
        connect(&socket, &to).unwrap();
        socket
    })
}

fn run(node: &Node, some_wait: bool) -> Reclaimed {
    sidestep_ebpf::reclaim::run(&node.options.pins, some_wait).unwrap()
}

fn is_six(socket: &UdpSocket) -> bool {
    peer(socket) == at(VIP6, 53)
}

#[test]
fn in_every_namespace_exactly_those_that_were_translated() {
    let mut node = Node::new();
    let clients = [node.testbed.pod(), node.testbed.pod()];
    let (old, new) = (node.testbed.pod(), node.testbed.pod());
    let _echoes = [echo(&old, 5353), echo(&new, 5353)];
    for (name, vip, address) in [("four", VIP, old.v4), ("six", VIP6, old.v6), ("other", "10.96.0.2", old.v4)] {
        node.service(name, Udp, vip, 53, [(address, 5353)]);
    }
    let direct = SocketAddr::new(old.v4, 5353);
    let services = [at(VIP, 53), mapped(at(VIP, 53)), at(VIP6, 53)];
    let stale: Vec<_> = clients.iter().flat_map(|pod| services.map(|to| connected(pod, to))).collect();
    let spared: Vec<_> =
        clients.iter().flat_map(|pod| [direct, at("10.96.0.2", 53)].map(|to| connected(pod, to))).collect();
    // Translated once, and disconnected since.
    let disconnected = connected(&clients[0], at(VIP, 53));
    connect_unspec(&disconnected).unwrap();
    let turned = connected(&clients[1], at(VIP, 53));
    connect(&turned, &direct).unwrap();
    let unconnected = clients[0].namespace.run(crate::sockets::socket);
    assert_eq!(ask(&unconnected, at(VIP, 53)), (old.v4, at(VIP, 53)));
    // Created outside of the cgroup.
    let foreign = node.testbed.cgroup.outside(|| connected(&clients[1], direct));

    node.endpoints("four", Udp, [(new.v4, 5353)]);
    node.endpoints("six", Udp, []);
    let [moved, ended]: [Vec<_>; 2] = [false, true].map(|six| stale.iter().filter(|s| is_six(s) == six).collect());
    let expected = Reclaimed { moved: moved.len() as u64, ended: ended.len() as u64, waiting: ended.len() as u64 };
    assert_eq!(run(&node, false), expected);
    for socket in moved {
        socket.send(b"?").unwrap();
        assert_eq!(hear(socket), (new.v4, peer(socket)));
    }
    for socket in ended {
        assert_eq!(socket.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }
    for socket in spared.iter().chain([&turned, &foreign]) {
        let before = peer(socket);
        socket.send(b"?").unwrap();
        assert_eq!(hear(socket), (old.v4, before));
    }
    assert_eq!(ask(&disconnected, direct), (old.v4, direct));
    assert_eq!(ask(&unconnected, at(VIP, 53)), (new.v4, at(VIP, 53)));
    assert_eq!(run(&node, false), Reclaimed::default(), "and only once");
}

#[test]
fn a_backend_that_terminates_keeps_its_sockets_as_long_as_it_serves() {
    let mut node = Node::new();
    let (client, old, new) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _echoes = [echo(&old, 5353), echo(&new, 5353)];
    node.service("dns", Udp, VIP, 53, [(old.v4, 5353)]);
    let to = at(VIP, 53);
    let (kept, unconnected) = (connected(&client, to), client.namespace.run(crate::sockets::socket));
    assert_eq!(ask(&unconnected, to), (old.v4, to));
    let mut both = slice("dns", Udp, [(old.v4, 5353), (new.v4, 5353)]);
    both.endpoints[0] = SliceEndpoint { ready: false, terminating: true, ..ready(old.v4) };
    node.change(Change::Put(Object::Slice(both)));
    assert_eq!(run(&node, false), Reclaimed::default());
    kept.send(b"?").unwrap();
    assert_eq!(hear(&kept), (old.v4, to));
    assert_eq!(ask(&unconnected, to), (old.v4, to));
    assert_eq!(ask(&client.namespace.run(crate::sockets::socket), to), (new.v4, to), "what is new goes elsewhere");
    node.endpoints("dns", Udp, [(new.v4, 5353)]);
    assert_eq!(run(&node, false), Reclaimed { moved: 1, ..Reclaimed::default() });
}

/// Such as clients of statsd and syslog: they never receive, and never connect again.
#[test]
fn a_client_that_only_sends_reaches_the_next_backend() {
    let mut node = Node::new();
    let (client, old, new) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let hearers = [&old, &new].map(|pod| {
        let at = SocketAddr::new(pod.v4, 8125);
        pod.namespace.run(|| patient(UdpSocket::bind(at).unwrap()))
    });
    node.service("statsd", Udp, VIP, 8125, [(old.v4, 8125)]);
    let socket = connected(&client, at(VIP, 8125));
    let heard_from = |hearer: &UdpSocket| hearer.recv_from(&mut [0; 16]).unwrap().1;
    socket.send(b"one").unwrap();
    let from = heard_from(&hearers[0]);
    node.endpoints("statsd", Udp, [(new.v4, 8125)]);
    assert_eq!(run(&node, false).moved, 1);
    socket.send(b"two").unwrap();
    assert_eq!(heard_from(&hearers[1]), from, "from the same port");
    assert_eq!(peer(&socket), at(VIP, 8125));
    // While there is no backend, calls fail.
    node.endpoints("statsd", Udp, []);
    assert_eq!(run(&node, false), Reclaimed { moved: 0, ended: 1, waiting: 1 });
    for _ in 0..2 {
        assert_eq!(socket.send(b"?").unwrap_err().raw_os_error(), Some(Errno::DESTADDRREQ.raw_os_error()));
    }
    assert_eq!(run(&node, true), Reclaimed { moved: 0, ended: 0, waiting: 1 });
    node.endpoints("statsd", Udp, [(old.v4, 8125)]);
    assert_eq!(run(&node, true), Reclaimed { moved: 1, ended: 0, waiting: 0 });
    // The pending error of the abort is the first thing that the program gets.
    assert_eq!(socket.take_error().unwrap().unwrap().kind(), ErrorKind::ConnectionAborted);
    socket.send(b"three").unwrap();
    heard_from(&hearers[0]);
}

/// Each socket is connected once, whichever processes hold it. A socket whose address is no longer a Service's is left alone.
#[test]
fn sockets_of_other_processes_and_of_several_are_moved_once() {
    let mut node = Node::new();
    let (client, old, new) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _echoes = [echo(&old, 5353), echo(&new, 5353)];
    node.service("dns", Udp, VIP, 53, [(old.v4, 5353)]);
    node.service("gone", Udp, "10.96.0.2", 53, [(old.v4, 5353)]);
    let shared = connected(&client, at(VIP, 53));
    let orphan = connected(&client, at("10.96.0.2", 53));
    // A process of another user, with the socket as its standard input, asks until the new backend answers.
    let ask = "import socket, sys; s = socket.socket(fileno=0); s.settimeout(0.2); said = ''\n\
               while said != sys.argv[1]:\n try: s.send(b'?'); said = s.recv(99).decode()\n except OSError: pass\n\
               print(said)";
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--inh-caps=-all", "/usr/bin/python3", "-c", ask, &new.v4.to_string()]);
    command.stdin(rustix::fd::OwnedFd::from(shared.try_clone().unwrap())).stdout(std::process::Stdio::piped());
    let other = client.namespace.run(|| command.spawn().unwrap());
    node.endpoints("dns", Udp, [(new.v4, 5353)]);
    node.forget("gone");
    assert_eq!(run(&node, false), Reclaimed { moved: 1, ended: 1, waiting: 1 });
    assert_eq!(orphan.send(b"?").unwrap_err().raw_os_error(), Some(Errno::DESTADDRREQ.raw_os_error()));
    assert!(other.wait_with_output().unwrap().status.success());
    drop(shared);
}

/// An aborted socket can be connected again by its program.
#[test]
fn an_aborted_socket_connects_to_the_new_backend() {
    let mut node = Node::new();
    let (client, old, new) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _echoes = [echo(&old, 5353), echo(&new, 5353)];
    node.service("dns", Udp, VIP, 53, [(old.v4, 5353)]);
    let socket = connected(&client, at(VIP, 53));
    node.endpoints("dns", Udp, []);
    assert_eq!(run(&node, false).ended, 1);
    assert_eq!(socket.send(b"?").unwrap_err().raw_os_error(), Some(Errno::DESTADDRREQ.raw_os_error()));
    assert_eq!(socket.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    node.endpoints("dns", Udp, [(new.v4, 5353)]);
    connect(&socket, &at(VIP, 53)).unwrap();
    socket.send(b"?").unwrap();
    assert_eq!(hear(&socket), (new.v4, at(VIP, 53)));
    assert_eq!(run(&node, true), Reclaimed::default(), "it waits for nothing any more");
}

/// If it were connected, it would no longer hear the server to which its program has turned.
#[test]
fn an_aborted_socket_that_sends_elsewhere_is_not_connected_any_more() {
    let mut node = Node::new();
    let (client, backend, other) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _echoes = [echo(&backend, 5353), echo(&other, 5353)];
    node.service("dns", Udp, VIP, 53, [(backend.v4, 5353)]);
    let elsewhere = SocketAddr::new(other.v4, 5353);
    let (turned, waiting) = (connected(&client, at(VIP, 53)), connected(&client, at(VIP, 53)));
    node.endpoints("dns", Udp, []);
    assert_eq!(run(&node, false).ended, 2);
    for socket in [&turned, &waiting] {
        assert_eq!(socket.take_error().unwrap().unwrap().kind(), ErrorKind::ConnectionAborted);
    }
    assert_eq!(ask(&turned, elsewhere), (other.v4, elsewhere));
    node.endpoints("dns", Udp, [(backend.v4, 5353)]);
    assert_eq!(run(&node, true), Reclaimed { moved: 1, ended: 0, waiting: 0 });
    assert_eq!(ask(&turned, elsewhere), (other.v4, elsewhere));
    waiting.send(b"?").unwrap();
    assert_eq!(hear(&waiting), (backend.v4, at(VIP, 53)));
}

/// A name of ip-netns(8) without a namespace, as left by a reboot.
struct Name(std::path::PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_name_without_a_namespace_hinders_nobody() {
    let mut node = Node::new();
    let (client, old) = (node.testbed.pod(), node.testbed.pod());
    let name = Name(format!("/run/netns/sidestep-stale-{}", std::process::id()).into());
    std::fs::write(&name.0, "").unwrap();
    node.service("dns", Udp, VIP, 53, [(old.v4, 5353)]);
    let socket = connected(&client, at(VIP, 53));
    node.endpoints("dns", Udp, []);
    assert_eq!(run(&node, false).ended, 1);
    assert_eq!(socket.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
}
