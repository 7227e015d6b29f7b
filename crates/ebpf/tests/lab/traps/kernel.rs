//! Sockets that the kernel itself connects: here those below an MPTCP socket.

use crate::node::{Node, backend};
use crate::sockets::{at, greeted};
use rustix::net::{AddressFamily, SocketType, connect, ipproto};
use sidestep_mesh::address::Protocol::Tcp;
use std::net::TcpStream;

const VIP: &str = "10.96.0.1";

#[test]
fn the_subflow_of_a_multipath_socket_is_translated() {
    let mut node = Node::new();
    let (client, server) = (node.lab.pod(), node.lab.pod());
    let _server = backend(&server, 8080);
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    client.namespace.run(|| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP)).unwrap();
        connect(&socket, &at(VIP, 80)).unwrap();
        assert_eq!(greeted(TcpStream::from(socket)).unwrap().0, server.v4);
    });
    assert_eq!(node.open(server.v4, 8080), 0);
}
