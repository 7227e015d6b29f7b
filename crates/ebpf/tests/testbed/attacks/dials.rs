//! Ways to reach a host that might escape the checks at connect(2) and sendto(2). None reaches a forbidden host, and none goes
//! around a proxy.

use super::caller::{SOON, as_nobody, send_with, set_number, set_option};
use crate::capture::world::{self, OUTBOUND};
use crate::policy::world::{PORTS, World};
use crate::sockets::{fresh, mapped};
use crate::traps::message::{Message, with_headers};
use crate::traps::rings;
use io_uring::{IoUring, opcode, types};
use rustix::net::sockopt::{self, Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendFlags, SocketType, bind, connect, connect_unspec, getsockname, ipproto, recv, send, sendto,
    socket,
};
use sidestep_testkit::Pod;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

/// Hosts of one family that the pod may call, and that it may not.
#[derive(Clone, Copy)]
pub struct Hosts {
    allowed: SocketAddr,
    forbidden: SocketAddr,
}

/// Returns what the forbidden host says, if it is reached.
type Dial = fn(Hosts) -> io::Result<String>;

const IPV6_ADDRFORM: libc::c_int = 1;
const IP_UNICAST_IF: libc::c_int = 50;
const IPV6_UNICAST_IF: libc::c_int = 76;

const STREAMS: &[(&str, Dial)] = &[
    ("connect", |to| said(stream(to), to.forbidden)),
    ("connect of a mapped address", |to| said(fresh(SocketType::STREAM, true), mapped(to.forbidden))),
    ("from a bound port", |to| {
        let socket = stream(to);
        let any = if to.forbidden.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        bind(&socket, &any.parse::<SocketAddr>().unwrap())?;
        said(socket, to.forbidden)
    }),
    ("by an interface", |to| {
        let socket = stream(to);
        set_option(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"eth0")?;
        said(socket, to.forbidden)
    }),
    ("after another connection", |to| {
        let socket = stream(to);
        connect(&socket, &to.allowed)?;
        connect_unspec(&socket)?;
        said(socket, to.forbidden)
    }),
    ("a multipath socket", |to| {
        let family = if to.forbidden.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        said(socket(family, SocketType::STREAM, Some(ipproto::MPTCP))?, to.forbidden)
    }),
    ("sendto with MSG_FASTOPEN", |to| {
        let socket = stream(to);
        // Empty: the server reads nothing, and would reset the connection.
        sendto(&socket, b"", SendFlags::from_bits_retain(libc::MSG_FASTOPEN as u32), &to.forbidden)?;
        rest(socket)
    }),
    ("TCP_FASTOPEN_CONNECT", |to| {
        let socket = stream(to);
        set_number(&socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)?;
        connect(&socket, &to.forbidden)?;
        send(&socket, b"", SendFlags::empty())?;
        rest(socket)
    }),
    ("io_uring", |to| by_ring(to, false)),
    ("io_uring, by its worker", |to| by_ring(to, true)),
    ("a socket that has changed its family", |to| {
        if to.forbidden.is_ipv6() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // An own address is valid while the socket is connected, which here it stays.
        let inside = TcpListener::bind("127.0.0.1:0")?;
        let socket = fresh(SocketType::STREAM, true);
        connect(&socket, &mapped(inside.local_addr()?))?;
        set_number(&socket, libc::IPPROTO_IPV6, IPV6_ADDRFORM, libc::AF_INET)?;
        connect_unspec(&socket)?;
        said(socket, to.forbidden)
    }),
    ("a socket that may have any source", |to| {
        let socket = stream(to);
        let (level, option) = freebind(to);
        set_number(&socket, level, option, 1)?;
        said(socket, to.forbidden)
    }),
];

const DATAGRAMS: &[(&str, Dial)] = &[
    ("connect", |to| {
        let socket = datagram(to);
        connect(&socket, &to.forbidden)?;
        send(&socket, b"?", SendFlags::empty())?;
        heard(socket)
    }),
    ("sendto", |to| {
        let socket = datagram(to);
        sendto(&socket, b"?", SendFlags::empty(), &to.forbidden)?;
        heard(socket)
    }),
    ("sendto a mapped address", |to| {
        let socket = fresh(SocketType::DGRAM, true);
        set_socket_timeout(&socket, Timeout::Recv, Some(SOON))?;
        sendto(&socket, b"?", SendFlags::empty(), &mapped(to.forbidden))?;
        heard(socket)
    }),
    ("sendto from a connected socket", |to| {
        let [socket, hearing] = pair(to)?;
        connect(&socket, &to.allowed)?;
        sendto(&socket, b"?", SendFlags::empty(), &to.forbidden)?;
        heard(hearing)
    }),
    ("sendmmsg to both", |to| {
        let socket = datagram(to);
        let mut messages = [Message::to(to.allowed), Message::to(to.forbidden)];
        with_headers(&mut messages, |headers| {
            // SAFETY: as many headers as are there, all of whose pointers live until the call returns.
            unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), headers.len() as u32, 0) }
        });
        one_says(&socket, to.forbidden.ip())
    }),
    ("MSG_MORE, and another address", |to| {
        let socket = datagram(to);
        sendto(&socket, b"?", SendFlags::MORE, &to.allowed)?;
        let sent = sendto(&socket, b"?", SendFlags::empty(), &to.forbidden);
        one_says(&socket, to.forbidden.ip()).and_then(|said| sent.map(|_| said).map_err(io::Error::from))
    }),
    ("with an interface in a control message", |to| {
        let socket = datagram(to);
        send_with(&socket, Some(to.forbidden), packet_info(to).0, &packet_info(to).1)?;
        heard(socket)
    }),
    ("from a connected socket, with a control message", |to| {
        let [socket, hearing] = pair(to)?;
        connect(&socket, &to.allowed)?;
        send_with(&socket, Some(to.forbidden), packet_info(to).0, &packet_info(to).1)?;
        heard(hearing)
    }),
    ("by an interface for datagrams", |to| {
        let socket = datagram(to);
        let by = interface().to_be_bytes();
        let (level, option) = match to.forbidden.is_ipv6() {
            true => (libc::IPPROTO_IPV6, IPV6_UNICAST_IF),
            false => (libc::IPPROTO_IP, IP_UNICAST_IF),
        };
        set_option(&socket, level, option, &by)?;
        sendto(&socket, b"?", SendFlags::empty(), &to.forbidden)?;
        heard(socket)
    }),
    ("io_uring", |to| {
        let socket = datagram(to);
        let mut ring = IoUring::new(4)?;
        with_headers(&mut [Message::to(to.forbidden)], |headers| {
            let operation = opcode::SendMsg::new(types::Fd(socket.as_raw_fd()), &headers[0].msg_hdr).build();
            // SAFETY: header, text and address live until the operation is complete, which is inside.
            unsafe { rings::complete(&mut ring, operation) }
        })?;
        heard(socket)
    }),
];

fn stream(to: Hosts) -> OwnedFd {
    fresh(SocketType::STREAM, to.forbidden.is_ipv6())
}

fn datagram(to: Hosts) -> OwnedFd {
    let socket = fresh(SocketType::DGRAM, to.forbidden.is_ipv6());
    set_socket_timeout(&socket, Timeout::Recv, Some(SOON)).unwrap();
    socket
}

/// Two sockets at one port: datagrams that are not from the first one's peer go to the second.
fn pair(to: Hosts) -> io::Result<[OwnedFd; 2]> {
    let [one, other] = [datagram(to), datagram(to)];
    sockopt::set_socket_reuseport(&one, true)?;
    sockopt::set_socket_reuseport(&other, true)?;
    let any = if to.forbidden.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    bind(&one, &any.parse::<SocketAddr>().unwrap())?;
    bind(&other, &SocketAddr::try_from(getsockname(&one)?).unwrap())?;
    Ok([one, other])
}

fn freebind(to: Hosts) -> (libc::c_int, libc::c_int) {
    if to.forbidden.is_ipv6() { (libc::IPPROTO_IPV6, 78) } else { (libc::IPPROTO_IP, libc::IP_FREEBIND) }
}

fn interface() -> u32 {
    rustix::net::netdevice::name_to_index(fresh(SocketType::DGRAM, false), "eth0").unwrap()
}

/// Names the outgoing interface, but no source.
fn packet_info(to: Hosts) -> ((libc::c_int, libc::c_int), Vec<u8>) {
    let interface = interface().to_ne_bytes();
    match to.forbidden.is_ipv6() {
        true => ((libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), [&[0; 16][..], &interface].concat()),
        false => ((libc::IPPROTO_IP, libc::IP_PKTINFO), [&interface[..], &[0; 8]].concat()),
    }
}

fn by_ring(to: Hosts, worker: bool) -> io::Result<String> {
    let (socket, mut ring) = (stream(to), IoUring::new(4)?);
    rings::connect(&mut ring, &socket, to.forbidden, worker)?;
    rest(socket)
}

/// What a stream socket reads after dialling there.
fn said(socket: OwnedFd, to: SocketAddr) -> io::Result<String> {
    set_socket_timeout(&socket, Timeout::Send, Some(SOON))?;
    connect(&socket, &to)?;
    rest(socket)
}

fn rest(socket: OwnedFd) -> io::Result<String> {
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(SOON))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn heard(socket: OwnedFd) -> io::Result<String> {
    let mut text = [0; 256];
    let length = recv(&socket, &mut text[..], rustix::net::RecvFlags::empty())?.0;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// Waits for this host's answer among several.
fn one_says(socket: &OwnedFd, who: IpAddr) -> io::Result<String> {
    loop {
        let mut text = [0; 64];
        let length = recv(socket, &mut text[..], rustix::net::RecvFlags::empty())?.0;
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        if text == who.to_string() {
            return Ok(text);
        }
    }
}

fn try_all(pod: &Pod, dials: &[(&str, Dial)], to: Hosts) -> Vec<(String, io::Result<String>)> {
    as_nobody(pod, || dials.iter().map(|(name, dial)| ((*name).to_string(), dial(to))).collect())
}

/// Ways that no kernel permits.
fn is_no_way(name: &str, v6: bool) -> bool {
    (v6 && name == "a socket that has changed its family") || name == "MSG_MORE, and another address"
}

#[test]
fn no_way_leads_to_a_forbidden_host() {
    let mut world = World::new();
    let [web, db, other] = world.apps(["web", "db", "other"]);
    for has_policy in [false, true] {
        if has_policy {
            world.policy(
                "web",
                "select: {matchLabels: {app: web}}, egress: [{action: allow, to: [{labels: {app: other}}]}]",
            );
            world.settle();
        }
        for v6 in [false, true] {
            let hosts = |port| {
                let [allowed, forbidden] = [&other, &db].map(|name| SocketAddr::new(world.address(name, v6), port));
                Hosts { allowed, forbidden }
            };
            let forbidden = world.address(&db, v6).to_string();
            for (kind, dials, port) in [("stream", STREAMS, PORTS[0]), ("datagram", DATAGRAMS, PORTS[0])] {
                for (name, outcome) in try_all(&world.pods[&web], dials, hosts(port)) {
                    let reached = outcome.as_ref().is_ok_and(|said| *said == forbidden);
                    let expected = !has_policy && !is_no_way(&name, v6);
                    assert_eq!(reached, expected, "{kind}: {name}, IPv6 {v6}, has_policy {has_policy}: {outcome:?}");
                }
            }
        }
    }
}

#[test]
fn no_way_leads_around_a_proxy() {
    let mut world = world::World::new();
    let [client, server, other] = [world.pod(), world.pod(), world.pod()];
    let _programs = [world::program(&server, PORTS[0]), world::program(&other, PORTS[0])];
    let _proxy = world::proxy(&client);
    world.capture(&client, &world::rules());
    for v6 in [false, true] {
        let ip = |pod: &Pod| if v6 { pod.v6 } else { pod.v4 };
        let hosts =
            Hosts { allowed: SocketAddr::new(ip(&other), PORTS[0]), forbidden: SocketAddr::new(ip(&server), PORTS[0]) };
        for (name, outcome) in try_all(&client, STREAMS, hosts) {
            match outcome {
                Ok(said) => {
                    let seen = world::seen(&said);
                    assert_eq!((seen.listener, seen.original), (OUTBOUND, Some(hosts.forbidden)), "{name}, IPv6 {v6}");
                }
                Err(error) => assert!(is_no_way(&name, v6), "{name}, IPv6 {v6}: {error}"),
            }
        }
    }
}

/// Options that would lead elsewhere need privileges.
#[test]
fn the_kernel_refuses_nobody_what_takes_privileges() {
    let mut world = world::World::new();
    let pod = world.pod();
    let errors = as_nobody(&pod, || {
        let stream = fresh(SocketType::STREAM, false);
        [
            set_number(&stream, libc::SOL_SOCKET, libc::SO_MARK, 7),
            set_number(&stream, libc::IPPROTO_TCP, libc::TCP_REPAIR, 1),
            set_number(&stream, libc::IPPROTO_IP, libc::IP_TRANSPARENT, 1),
            set_number(&fresh(SocketType::STREAM, true), libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1),
            socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP)).map(drop).map_err(io::Error::from),
            socket(AddressFamily::PACKET, SocketType::RAW, None).map(drop).map_err(io::Error::from),
        ]
        .map(|outcome| outcome.map_err(|error| error.raw_os_error()))
    });
    assert_eq!(errors, [Err(Some(libc::EPERM)); 6]);
}
