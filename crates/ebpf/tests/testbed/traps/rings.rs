//! io_uring makes these calls without the system calls of the same names.

use super::message::{Message, with_headers};
use crate::node::{Node, backend};
use crate::sockets::{at, echo, fresh, greeted, mapped, socket, socket6};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::addr::SocketAddrArg;
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

const VIP: &str = "10.96.0.1";

/// Submits one operation and waits for its result.
///
/// # Safety
/// What the operation points at lives until then.
pub unsafe fn complete(ring: &mut IoUring, operation: squeue::Entry) -> Result<u32, Errno> {
    // SAFETY: by the caller's contract, since it is waited for before this returns.
    unsafe { ring.submission().push(&operation).unwrap() };
    ring.submit_and_wait(1).unwrap();
    let outcome = ring.completion().next().unwrap().result();
    u32::try_from(outcome).map_err(|_| Errno::from_raw_os_error(-outcome))
}

pub fn connect(ring: &mut IoUring, socket: &OwnedFd, to: SocketAddr, worker: bool) -> Result<u32, Errno> {
    let flags = if worker { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
    // SAFETY: the address lives until the operation is complete, which is inside.
    unsafe {
        to.with_sockaddr(|place, length| {
            let operation = opcode::Connect::new(types::Fd(socket.as_raw_fd()), place.cast(), length);
            complete(ring, operation.build().flags(flags))
        })
    }
}

/// Inline, and by a worker thread of the kernel.
#[test]
fn a_connection_made_by_a_ring_is_the_services() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _server = backend(&server, 8080);
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    node.service("none", Tcp, "10.96.0.2", 80, []);
    client.namespace.run(|| {
        let mut ring = IoUring::new(4).expect("io_uring, which kernel.io_uring_disabled may forbid");
        for (worker, v6) in [(false, false), (true, false), (false, true), (true, true)] {
            let name = |ip: &str| if v6 { at(&format!("::ffff:{ip}"), 80) } else { at(ip, 80) };
            let socket = fresh(SocketType::STREAM, v6);
            assert_eq!(connect(&mut ring, &socket, name(VIP), worker), Ok(0));
            assert_eq!(greeted(TcpStream::from(socket)).unwrap(), (server.v4, name(VIP)));
            let refused = fresh(SocketType::STREAM, v6);
            assert_eq!(connect(&mut ring, &refused, name("10.96.0.2"), worker), Err(Errno::CONNREFUSED));
        }
    });
    assert_eq!((node.counters("web").picks, node.open(server.v4, 8080)), (4, 0));
}

/// Sends and receives one message.
fn ask(ring: &mut IoUring, socket: &UdpSocket, to: SocketAddr) -> (SocketAddr, IpAddr) {
    let fd = types::Fd(socket.as_raw_fd());
    with_headers(&mut [Message::to(to)], |headers| {
        // SAFETY: header, text and address live until the operation is complete, which is inside.
        let sent = unsafe { complete(ring, opcode::SendMsg::new(fd, &headers[0].msg_hdr).build()) };
        assert_eq!(sent, Ok(1));
    });
    let mut answers = [Message::empty()];
    with_headers(&mut answers, |headers| {
        // SAFETY: as above.
        headers[0].msg_len =
            unsafe { complete(ring, opcode::RecvMsg::new(fd, &mut headers[0].msg_hdr).build()) }.unwrap();
    });
    answers[0].heard()
}

#[test]
fn datagrams_of_a_ring_are_the_services() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    node.service("dns", Udp, VIP, 53, [(server.v4, 5353)]);
    client.namespace.run(|| {
        let mut ring = IoUring::new(4).expect("io_uring, which kernel.io_uring_disabled may forbid");
        for (socket, vip) in [(socket(), at(VIP, 53)), (socket6(), mapped(at(VIP, 53)))] {
            assert_eq!(ask(&mut ring, &socket, vip), (vip, server.v4));
        }
    });
}
