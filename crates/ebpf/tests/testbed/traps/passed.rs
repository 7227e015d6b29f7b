//! A translation belongs to the socket, whichever process holds it, and wherever that process is.

use crate::node::{Node, backend};
use crate::sockets::{at, echo, hear, socket, until};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

const VIP: &str = "10.96.0.1";

/// What another program, which has the socket as its standard input, observes.
fn told(socket: impl Into<OwnedFd>, script: &str) -> Vec<String> {
    let script = format!("import socket\ns = socket.socket(fileno=0)\n{script}");
    let mut command = Command::new("/usr/bin/python3");
    let done = command.args(["-c", &script]).stdin(Stdio::from(socket.into())).output().expect("python3 is installed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().lines().map(String::from).collect()
}

#[test]
fn a_socket_means_the_same_to_another_program() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let (_server, _echo) = (backend(&server, 8080), echo(&server, 5353));
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    node.service("dns", Udp, VIP, 53, [(server.v4, 5353)]);
    let (stream, connected, unconnected) = client.namespace.run(|| {
        let connected = socket();
        connected.connect(at(VIP, 53)).unwrap();
        let unconnected: UdpSocket = socket();
        unconnected.send_to(b"?", at(VIP, 53)).unwrap();
        (TcpStream::connect(at(VIP, 80)).unwrap(), connected, unconnected)
    });
    let ours = stream.try_clone().unwrap();
    // The other program is in another network namespace, and outside of the cgroup.
    let (peers, heard) = node.testbed.cgroup.outside(|| {
        let stream_peer = told(stream, "print(s.getpeername())\nprint(s.recv(64).decode())");
        let datagram_peer = told(connected.try_clone().unwrap(), "print(s.getpeername())\ns.send(b'?')");
        ([stream_peer, datagram_peer].concat(), told(unconnected, "s.setblocking(True)\nprint(s.recvfrom(64))"))
    });
    assert_eq!(peers, [format!("('{VIP}', 80)"), server.v4.to_string(), format!("('{VIP}', 53)")]);
    assert_eq!(heard, [format!("(b'{}', ('{VIP}', 53))", server.v4)]);
    assert_eq!(hear(&connected), (server.v4, at(VIP, 53)));
    // The connection is open as long as any process holds it.
    assert_eq!((node.open(server.v4, 8080), node.open(server.v4, 5353)), (1, 1));
    drop((ours, connected));
    until("nothing counts as open", || (node.open(server.v4, 8080), node.open(server.v4, 5353)) == (0, 0));
}

/// A socket that was created outside of the cgroup is not translated, even if it is used inside.
#[test]
fn a_socket_from_outside_is_left_alone() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _server = backend(&server, 8080);
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    let foreign = node
        .testbed
        .cgroup
        .outside(|| client.namespace.run(|| crate::sockets::fresh(rustix::net::SocketType::STREAM, false)));
    assert_eq!(rustix::net::connect(&foreign, &at(VIP, 80)), Err(rustix::io::Errno::NETUNREACH));
    assert_eq!(node.reason("translated"), 0);
}
