//! Sockets that connect more than once: after a failure, to another Service, or after a disconnect.

use crate::node::{Node, backend};
use crate::sockets::{ask, at, dial, echo, fresh, greeted, hear, peer, socket, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketType, connect, connect_unspec, sockopt};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

const ONE: &str = "10.96.0.1";
const TWO: &str = "10.96.0.2";

#[test]
fn a_connected_stream_does_not_connect_again() {
    let mut node = Node::new();
    let (client, one, two) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _servers = [backend(&one, 8080), backend(&two, 8080)];
    node.service("one", Tcp, ONE, 80, [(one.v4, 8080)]);
    node.service("two", Tcp, TWO, 80, [(two.v4, 8080)]);
    client.namespace.run(|| {
        let stream = TcpStream::connect(at(ONE, 80)).unwrap();
        for to in [at(TWO, 80), at(ONE, 80), SocketAddr::new(two.v4, 8080)] {
            assert_eq!(connect(&stream, &to), Err(Errno::ISCONN));
            assert_eq!(stream.peer_addr().unwrap(), at(ONE, 80));
        }
        assert_eq!(greeted(stream).unwrap(), (one.v4, at(ONE, 80)));
    });
    assert_eq!((node.open(one.v4, 8080), node.open(two.v4, 8080)), (0, 0));
}

#[test]
fn a_disconnected_stream_connects_elsewhere() {
    let mut node = Node::new();
    let (client, one, two) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _servers = [backend(&one, 8080), backend(&two, 8080)];
    node.service("one", Tcp, ONE, 80, [(one.v4, 8080)]);
    node.service("two", Tcp, TWO, 80, [(two.v4, 8080)]);
    // The last one dials the first one's backend directly.
    let direct = SocketAddr::new(one.v4, 8080);
    let socket = client.namespace.run(|| fresh(SocketType::STREAM, false));
    for (to, who) in [(at(ONE, 80), one.v4), (at(TWO, 80), two.v4), (at(ONE, 80), one.v4), (direct, one.v4)] {
        connect(&socket, &to).unwrap();
        assert_eq!(peer(&socket), to);
        assert_eq!(node.open(one.v4, 8080), u64::from(to == at(ONE, 80)), "{to}");
        let stream = TcpStream::from(socket.try_clone().unwrap());
        assert_eq!(greeted(stream).unwrap(), (who, to));
        connect_unspec(&socket).unwrap();
    }
    drop(socket);
    assert_eq!((node.open(one.v4, 8080), node.open(two.v4, 8080)), (0, 0));
}

/// A disconnected socket sees a backend's own address, not the Service of an earlier connection.
#[test]
fn a_disconnected_socket_hears_a_backend_as_itself() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    node.service("dns", Udp, ONE, 53, [(server.v4, 5353)]);
    client.namespace.run(|| {
        let (socket, vip, direct) = (socket(), at(ONE, 53), SocketAddr::new(server.v4, 5353));
        socket.connect(vip).unwrap();
        connect_unspec(&socket).unwrap();
        assert_eq!(socket.peer_addr().unwrap_err().raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
        assert_eq!(ask(&socket, direct), (server.v4, direct));
        assert_eq!(ask(&socket, vip), (server.v4, vip));
    });
}

#[test]
fn a_datagram_socket_dials_one_service_after_the_other() {
    let mut node = Node::new();
    let (client, one, two) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _echoes = [echo(&one, 5353), echo(&two, 5353)];
    node.service("one", Udp, ONE, 53, [(one.v4, 5353)]);
    node.service("two", Udp, TWO, 53, [(two.v4, 5353)]);
    let direct = SocketAddr::new(one.v4, 5353);
    let socket = client.namespace.run(socket);
    for (to, who) in [(at(ONE, 53), one.v4), (at(TWO, 53), two.v4), (at(ONE, 53), one.v4), (direct, one.v4)] {
        socket.connect(to).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), to);
        socket.send(b"?").unwrap();
        assert_eq!(hear(&socket), (who, to));
    }
    assert_eq!((node.open(one.v4, 5353), node.open(two.v4, 5353)), (0, 0));
}

/// A refused connect() has changed nothing.
#[test]
fn a_refused_connect_leaves_a_datagram_socket_as_it_was() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    node.service("dns", Udp, ONE, 53, [(server.v4, 5353)]);
    node.service("none", Udp, TWO, 53, []);
    let socket = client.namespace.run(socket);
    socket.connect(at(ONE, 53)).unwrap();
    assert_eq!(connect(&socket, &at(TWO, 53)), Err(Errno::CONNREFUSED));
    assert_eq!((socket.peer_addr().unwrap(), node.open(server.v4, 5353)), (at(ONE, 53), 1));
    socket.send(b"?").unwrap();
    assert_eq!(hear(&socket), (server.v4, at(ONE, 53)));
}

/// Returns when the connection has been established or has failed.
fn settled(socket: &OwnedFd) -> Result<(), Errno> {
    let mut waiting = [PollFd::new(socket, PollFlags::OUT)];
    let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(poll(&mut waiting, Some(&patience)), Ok(1));
    sockopt::socket_error(socket).unwrap()
}

#[test]
fn a_connection_that_failed_in_the_background_can_be_tried_again() {
    let mut node = Node::new();
    let (client, dead, alive) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let _server = backend(&alive, 8080);
    node.service("web", Tcp, ONE, 80, [(dead.v4, 8080)]);
    let socket = client.namespace.run(|| fresh(SocketType::STREAM, false));
    rustix::io::ioctl_fionbio(&socket, true).unwrap();
    assert_eq!(connect(&socket, &at(ONE, 80)), Err(Errno::INPROGRESS));
    assert_eq!(settled(&socket), Err(Errno::CONNREFUSED));
    assert_eq!(rustix::net::getpeername(&socket), Err(Errno::NOTCONN));
    node.endpoints("web", Tcp, [(alive.v4, 8080)]);
    assert_eq!(connect(&socket, &at(ONE, 80)), Err(Errno::CONNABORTED), "as the kernel ends a failed attempt");
    assert_eq!(connect(&socket, &at(ONE, 80)), Err(Errno::INPROGRESS));
    assert_eq!(settled(&socket), Ok(()));
    // A program may call connect() again to learn the result: the first call returns success, the next EISCONN.
    assert_eq!(connect(&socket, &at(ONE, 80)), Ok(()));
    assert_eq!(connect(&socket, &at(ONE, 80)), Err(Errno::ISCONN));
    rustix::io::ioctl_fionbio(&socket, false).unwrap();
    assert_eq!((node.open(dead.v4, 8080), node.open(alive.v4, 8080)), (0, 1));
    assert_eq!(greeted(TcpStream::from(socket)).unwrap(), (alive.v4, at(ONE, 80)));
    assert_eq!(node.open(alive.v4, 8080), 0);
}

#[test]
fn what_it_was_called_it_stays_after_the_service_has_gone() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let (_server, _echo) = (backend(&server, 8080), echo(&server, 5353));
    node.service("web", Tcp, ONE, 80, [(server.v4, 8080)]);
    node.service("dns", Udp, TWO, 53, [(server.v4, 5353)]);
    let (stream, datagrams) = client.namespace.run(|| {
        let datagrams: UdpSocket = socket();
        datagrams.connect(at(TWO, 53)).unwrap();
        (TcpStream::connect(at(ONE, 80)).unwrap(), datagrams)
    });
    node.forget("web");
    node.forget("dns");
    assert!(client.namespace.run(|| dial(at(ONE, 80))).is_err());
    assert_eq!(stream.peer_addr().unwrap(), at(ONE, 80));
    assert_eq!(datagrams.peer_addr().unwrap(), at(TWO, 53));
    datagrams.send(b"?").unwrap();
    assert_eq!(hear(&datagrams), (server.v4, at(TWO, 53)));
    assert_eq!(greeted(stream).unwrap(), (server.v4, at(ONE, 80)));
    until("nothing counts as open", || node.open(server.v4, 8080) == 0);
}
