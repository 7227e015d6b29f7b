//! Sockets that the kernel itself creates and connects. The best-known client is NFS, which not every kernel has
//! (CONFIG_NETWORK_FILESYSTEMS). An MPTCP subflow is such a socket as well: it passes the connect() hook, and no hook reports its
//! end.

use crate::node::{Node, backend};
use crate::sockets::{at, greeted};
use rustix::net::{AddressFamily, SocketType, connect, ipproto};
use sidestep_mesh::address::Protocol::Tcp;
use std::net::{SocketAddr, TcpStream};

const VIP: &str = "10.96.0.1";

/// The subflow does not count as an open connection, since nothing would report its end. The MPTCP socket itself was not
/// translated, so it reports the backend as its peer.
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
