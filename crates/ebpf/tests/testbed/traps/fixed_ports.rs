//! Source ports chosen by bind(): two connections from one source must have different peers. Only the kernel knows which source
//! connect() would choose.

use crate::node::{Node, backend};
use crate::sockets::{at, fresh, greeted};
use rustix::io::Errno;
use rustix::net::{SocketType, bind, connect, connect_unspec, sockopt};
use sidestep_mesh::address::Protocol::Tcp;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

const ONE: &str = "10.96.0.1";
const TWO: &str = "10.96.0.2";

/// A socket with this source port, which an earlier one may have had. It ends with a reset, which keeps no tuple.
fn bound(v6: bool, port: u16) -> OwnedFd {
    let socket = fresh(SocketType::STREAM, v6);
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    bind(&socket, &at(if v6 { "::" } else { "0.0.0.0" }, port)).unwrap();
    socket
}

/// If two Services have one backend, the second connection fails as in the kernel, but only while the first one lasts.
#[test]
fn a_tuple_that_is_taken_is_free_again() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _server = backend(&server, 8080);
    node.service("one", Tcp, ONE, 80, [(server.v4, 8080)]);
    node.service("two", Tcp, TWO, 80, [(server.v4, 8080)]);
    client.namespace.run(|| {
        for v6 in [false, true] {
            let name = |ip: &str| if v6 { at(&format!("::ffff:{ip}"), 80) } else { at(ip, 80) };
            let first = bound(v6, 40000);
            connect(&first, &name(ONE)).unwrap();
            let second = bound(v6, 40000);
            assert_eq!(connect(&second, &name(TWO)), Err(Errno::ADDRNOTAVAIL));
            assert_eq!(connect(&second, &SocketAddr::new(name(ONE).ip(), 81)), Err(Errno::NETUNREACH));
            connect_unspec(&first).unwrap();
            drop(first);
            connect(&second, &name(TWO)).unwrap();
            assert_eq!(greeted(TcpStream::from(second)).unwrap(), (server.v4, name(TWO)));
        }
    });
    assert!(node.reason("tuple-in-use") > 0);
}

/// The same source port again, while other backends are free: as many connections as there are backends.
#[test]
fn the_same_service_can_be_dialled_as_often_as_it_has_backends() {
    let mut node = Node::new();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod()]);
    let _servers: Vec<_> = pods.iter().map(|pod| backend(pod, 8080)).collect();
    node.service("one", Tcp, ONE, 80, pods.iter().map(|pod| (pod.v4, 8080)));
    client.namespace.run(|| {
        let mut made = 0;
        for _ in 0..50 {
            let sockets = [bound(false, 40000), bound(false, 40000)];
            let outcomes = sockets.each_ref().map(|socket| connect(socket, &at(ONE, 80)));
            assert_eq!(outcomes[0], Ok(()));
            made += usize::from(outcomes[1].is_ok());
            let third = bound(false, 40000);
            if outcomes[1].is_ok() {
                assert_eq!(connect(&third, &at(ONE, 80)), Err(Errno::ADDRNOTAVAIL));
            }
        }
        // Four tries find the other backend in 15 of 16 cases; fewer than 25 of 50 have a probability below 1e-18.
        assert!(made >= 25, "{made} of 50");
    });
    assert!(pods.iter().all(|pod| node.open(pod.v4, 8080) == 0));
}

/// A failed connection keeps neither its tuple nor its count.
#[test]
fn a_failed_connection_gives_its_tuple_back() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    node.service("one", Tcp, ONE, 80, [(server.v4, 8080)]);
    let failed = client.namespace.run(|| {
        let socket = bound(false, 40000);
        assert_eq!(connect(&socket, &at(ONE, 80)), Err(Errno::CONNREFUSED));
        socket
    });
    drop(failed);
    let _server = backend(&server, 8080);
    client.namespace.run(|| {
        let socket = bound(false, 40000);
        connect(&socket, &at(ONE, 80)).unwrap();
        assert_eq!(greeted(TcpStream::from(socket)).unwrap(), (server.v4, at(ONE, 80)));
    });
    assert_eq!((node.open(server.v4, 8080), node.reason("tuple-in-use")), (0, 0));
}
