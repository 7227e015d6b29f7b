//! Connected UDP sockets whose backend has gone: exactly those are aborted, wherever they are.

use crate::node::Node;
use crate::sockets::{ask, at, echo, fresh, hear, mapped, patient, peer};
use rustix::io::Errno;
use rustix::net::{SocketType, connect, connect_unspec};
use sidestep_mesh::address::Protocol::Udp;
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

#[test]
fn in_every_namespace_exactly_those_that_were_translated() {
    let mut node = Node::new();
    let clients = [node.lab.pod(), node.lab.pod()];
    let (old, new) = (node.lab.pod(), node.lab.pod());
    let _echoes = [echo(&old, 5353), echo(&new, 5353)];
    for (name, vip, address) in [("four", VIP, old.v4), ("six", VIP6, old.v6), ("other", "10.96.0.2", old.v4)] {
        node.service(name, Udp, vip, 53, [(address, 5353)]);
    }
    let direct = SocketAddr::new(old.v4, 5353);
    let services = [at(VIP, 53), mapped(at(VIP, 53)), at(VIP6, 53)];
    let stale: Vec<_> = clients.iter().flat_map(|pod| services.map(|to| connected(pod, to))).collect();
    let spared: Vec<_> =
        clients.iter().flat_map(|pod| [direct, at("10.96.0.2", 53)].map(|to| connected(pod, to))).collect();
    // Translated once, and then something else.
    let disconnected = connected(&clients[0], at(VIP, 53));
    connect_unspec(&disconnected).unwrap();
    let turned = connected(&clients[1], at(VIP, 53));
    connect(&turned, &direct).unwrap();
    let unconnected = clients[0].namespace.run(crate::sockets::socket);
    assert_eq!(ask(&unconnected, at(VIP, 53)), (old.v4, at(VIP, 53)));
    // Nobody in the cgroup has made it.
    let foreign = node.lab.cgroup.outside(|| connected(&clients[1], direct));

    node.endpoints("four", Udp, [(new.v4, 5353)]);
    node.endpoints("six", Udp, []);
    assert_eq!(sidestep_ebpf::reclaim::run(&node.options.pins).unwrap(), stale.len() as u64);
    for socket in &stale {
        assert_eq!(socket.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }
    for socket in spared.iter().chain([&turned, &foreign]) {
        let before = peer(socket);
        socket.send(b"?").unwrap();
        assert_eq!(hear(socket), (old.v4, before));
    }
    assert_eq!(ask(&disconnected, direct), (old.v4, direct));
    assert_eq!(ask(&unconnected, at(VIP, 53)), (new.v4, at(VIP, 53)));
    assert_eq!(sidestep_ebpf::reclaim::run(&node.options.pins).unwrap(), 0, "and only once");
}

/// A socket that was aborted can be used again: what a program does that dials anew.
#[test]
fn an_aborted_socket_connects_to_the_new_backend() {
    let mut node = Node::new();
    let (client, old, new) = (node.lab.pod(), node.lab.pod(), node.lab.pod());
    let _echoes = [echo(&old, 5353), echo(&new, 5353)];
    node.service("dns", Udp, VIP, 53, [(old.v4, 5353)]);
    let socket = connected(&client, at(VIP, 53));
    node.endpoints("dns", Udp, [(new.v4, 5353)]);
    assert_eq!(sidestep_ebpf::reclaim::run(&node.options.pins).unwrap(), 1);
    assert_eq!(socket.send(b"?").unwrap_err().raw_os_error(), Some(Errno::DESTADDRREQ.raw_os_error()));
    assert_eq!(socket.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    connect(&socket, &at(VIP, 53)).unwrap();
    socket.send(b"?").unwrap();
    assert_eq!(hear(&socket), (new.v4, at(VIP, 53)));
}

/// A name of ip-netns(8) whose namespace has gone with an earlier life of the machine.
struct Name(std::path::PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_name_without_a_namespace_hinders_nobody() {
    let mut node = Node::new();
    let (client, old) = (node.lab.pod(), node.lab.pod());
    let name = Name(format!("/run/netns/sidestep-stale-{}", std::process::id()).into());
    std::fs::write(&name.0, "").unwrap();
    node.service("dns", Udp, VIP, 53, [(old.v4, 5353)]);
    let socket = connected(&client, at(VIP, 53));
    node.endpoints("dns", Udp, []);
    assert_eq!(sidestep_ebpf::reclaim::run(&node.options.pins).unwrap(), 1);
    assert_eq!(socket.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
}
