//! Sockets that the kernel itself makes and connects. NFS is the client that everybody knows, and not in every kernel
//! (CONFIG_NETWORK_FILESYSTEMS); the subflow of an MPTCP socket takes the same way: a socket of the kernel's own, which
//! passes the hook of connect(), and of whose end no hook tells.

use crate::node::{Node, backend};
use crate::sockets::{at, greeted};
use rustix::net::{AddressFamily, SocketType, connect, ipproto};
use sidestep_mesh::address::Protocol::Tcp;
use std::net::{SocketAddr, TcpStream};

const VIP: &str = "10.96.0.1";

/// It counts as no open connection, since nobody would say when it is over. The MPTCP socket itself has dialled nothing,
/// and so names the backend as its peer.
#[test]
fn the_subflow_of_a_multipath_socket_is_translated() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _server = backend(&server, 8080);
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    client.namespace.run(|| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP)).unwrap();
        connect(&socket, &at(VIP, 80)).unwrap();
        assert_eq!(greeted(TcpStream::from(socket)).unwrap(), (server.v4, SocketAddr::new(server.v4, 8080)));
    });
    assert_eq!((node.counters("web").picks, node.open(server.v4, 8080)), (1, 0));
}
