//! The calls that carry an address with each datagram (sendto, sendmsg, sendmmsg) and their receiving counterparts. Each address is
//! translated separately.

use super::message::{Message, with_headers};
use crate::node::Node;
use crate::sockets::{PATIENCE, answer, at, echo, fresh, mapped, socket, socket6};
use rustix::net::SocketType;
use sidestep_mesh::address::Protocol::Udp;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::{io, ptr};

fn send_all(socket: &UdpSocket, to: &[SocketAddr]) {
    let mut messages: Vec<Message> = to.iter().map(|to| Message::to(*to)).collect();
    let sent = with_headers(&mut messages, |headers| {
        // SAFETY: as many headers as are there, all of whose pointers live until the call returns.
        unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), headers.len() as u32, 0) }
    });
    assert_eq!(sent, to.len() as i32, "{}", io::Error::last_os_error());
}

/// Receives by recvmmsg(2), in as many calls as necessary.
fn receive_all(socket: &UdpSocket, count: usize) -> Vec<(SocketAddr, IpAddr)> {
    let mut heard = Vec::new();
    while heard.len() < count {
        let mut messages: Vec<Message> = (heard.len()..count).map(|_| Message::empty()).collect();
        let received = with_headers(&mut messages, |headers| {
            let (length, flags) = (headers.len() as u32, libc::MSG_WAITFORONE);
            // SAFETY: as with sendmmsg; no timeout but the socket's own.
            unsafe { libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), length, flags, ptr::null_mut()) }
        });
        assert!(received > 0, "after {}: {}", heard.len(), io::Error::last_os_error());
        heard.extend(messages[..received as usize].iter().map(Message::heard));
    }
    heard
}

/// Receives by recvmsg(2).
fn receive(socket: &UdpSocket) -> (SocketAddr, IpAddr) {
    let mut messages = [Message::empty()];
    with_headers(&mut messages, |headers| {
        // SAFETY: one header, all of whose pointers live until the call returns.
        let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut headers[0].msg_hdr, 0) };
        assert!(length >= 0, "{}", io::Error::last_os_error());
        headers[0].msg_len = length as u32;
    });
    messages[0].heard()
}

#[test]
fn one_call_sends_to_two_services_and_a_pod() {
    let mut node = Node::new();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod(), node.testbed.pod()]);
    let _echoes: Vec<_> = pods.iter().map(|pod| echo(pod, 5353)).collect();
    let (one, two, direct) = (at("10.96.0.1", 53), at("10.96.0.2", 53), SocketAddr::new(pods[2].v4, 5353));
    node.service("one", Udp, "10.96.0.1", 53, [(pods[0].v4, 5353)]);
    node.service("two", Udp, "10.96.0.2", 53, [(pods[1].v4, 5353)]);
    client.namespace.run(|| {
        for (socket, name) in [(socket(), std::convert::identity as fn(SocketAddr) -> SocketAddr), (socket6(), mapped)]
        {
            send_all(&socket, &[name(one), name(two), name(direct), name(one)]);
            let mut heard: BTreeMap<SocketAddr, Vec<IpAddr>> = BTreeMap::new();
            receive_all(&socket, 4).into_iter().for_each(|(from, who)| heard.entry(from).or_default().push(who));
            let wanted =
                [(name(one), vec![pods[0].v4; 2]), (name(two), vec![pods[1].v4]), (name(direct), vec![pods[2].v4])];
            assert_eq!(heard, BTreeMap::from(wanted));
        }
    });
}

#[test]
fn every_call_that_receives_names_the_service() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    for (name, vip, address) in [("four", "10.96.0.1", server.v4), ("six", "fd00:96::1", server.v6)] {
        node.service(name, Udp, vip, 53, [(address, 5353)]);
        client.namespace.run(|| {
            let vip = at(vip, 53);
            for connected in [false, true] {
                let socket = if vip.is_ipv4() { socket() } else { socket6() };
                if connected {
                    socket.connect(vip).unwrap();
                }
                let send = || if connected { socket.send(b"?") } else { socket.send_to(b"?", vip) };
                send().unwrap();
                assert_eq!(receive(&socket), (vip, address));
                send().unwrap();
                assert_eq!(receive_all(&socket, 1), [(vip, address)]);
                send().unwrap();
                let mut text = [0; 64];
                let (_, seen) = socket.peek_from(&mut text).unwrap();
                let (length, from) = socket.recv_from(&mut text).unwrap();
                assert_eq!((seen, from, answer(&text[..length])), (vip, vip, address));
            }
        });
    }
}

/// Answers of a backend that is common to two Services cannot be told apart, unless the Services are asked one after the other.
#[test]
fn services_that_share_their_only_backend_are_asked_one_after_the_other() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    let services = [at("10.96.0.1", 53), at("10.96.0.2", 53)];
    node.service("one", Udp, "10.96.0.1", 53, [(server.v4, 5353)]);
    node.service("two", Udp, "10.96.0.2", 53, [(server.v4, 5353)]);
    client.namespace.run(|| {
        let socket = socket();
        for to in services.into_iter().cycle().take(6) {
            send_all(&socket, &[to]);
            assert_eq!(receive(&socket), (to, server.v4));
        }
        // Both at once: the answers carry one of the Services' addresses, never the backend's.
        send_all(&socket, &services);
        let heard = receive_all(&socket, 2);
        assert!(heard.iter().all(|(from, _)| services.contains(from)), "{heard:?}");
    });
}

/// sendto() with an address on a connected socket. For its own Service the datagram goes to its own backend, since the kernel
/// delivers no other backend's answer. For another Service it goes to that Service.
#[test]
fn a_connected_socket_sends_to_addresses() {
    let mut node = Node::new();
    let client = node.testbed.pod();
    let pods: Vec<_> = (0..3).map(|_| node.testbed.pod()).collect();
    let other = node.testbed.pod();
    let _echoes: Vec<_> = pods.iter().chain([&other]).map(|pod| echo(pod, 5353)).collect();
    node.service("many", Udp, "10.96.0.1", 53, pods.iter().map(|pod| (pod.v4, 5353)));
    node.service("one", Udp, "10.96.0.2", 53, [(other.v4, 5353)]);
    node.service("none", Udp, "10.96.0.3", 53, []);
    client.namespace.run(|| {
        let (many, one) = (at("10.96.0.1", 53), at("10.96.0.2", 53));
        for name in [std::convert::identity as fn(SocketAddr) -> SocketAddr, mapped] {
            for _ in 0..20 {
                let socket = UdpSocket::from(fresh(SocketType::DGRAM, name(many).is_ipv6()));
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.connect(name(many)).unwrap();
                socket.send(b"?").unwrap();
                let first = receive(&socket);
                socket.send_to(b"?", name(many)).unwrap();
                assert_eq!(receive(&socket), first);
                // Its answer is not delivered, as without Sidestep; the connection stays.
                socket.send_to(b"?", name(one)).unwrap();
                let refused = socket.send_to(b"?", name(at("10.96.0.3", 53))).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
                assert_eq!(socket.peer_addr().unwrap(), name(many));
                socket.send(b"?").unwrap();
                assert_eq!(receive(&socket), first);
            }
        }
    });
    assert_eq!(node.counters("one").picks, 40, "what was sent to another Service has gone there");
}

/// The same on a socket that is connected to a pod's own address.
#[test]
fn a_socket_connected_to_a_pod_sends_to_a_service() {
    let mut node = Node::new();
    let (client, server) = (node.testbed.pod(), node.testbed.pod());
    let _echo = echo(&server, 5353);
    node.service("dns", Udp, "10.96.0.1", 53, [(server.v4, 5353)]);
    client.namespace.run(|| {
        let (socket, vip, direct) = (socket(), at("10.96.0.1", 53), SocketAddr::new(server.v4, 5353));
        socket.connect(direct).unwrap();
        socket.send_to(b"?", vip).unwrap();
        assert_eq!(receive(&socket), (vip, server.v4));
        socket.send(b"?").unwrap();
        receive(&socket);
        assert_eq!(socket.peer_addr().unwrap(), direct);
    });
}
