//! Raw, packet and ping sockets, and protocols that rules know nothing of. A pod without CAP_NET_RAW has ping sockets at most.

use super::caller::{SOON, as_nobody};
use super::scene::Scene;
use crate::policy::probe::{Family, Seen};
use crate::policy::world::PORTS;
use crate::sockets::at;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketType, ipproto, recvfrom, sendto, socket};
use sidestep_mesh::address::Protocol::Tcp;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

const PORT: u16 = 9000;
const CLOSED: &str = "default: {egress: deny}, egress: [{action: allow, to: [{labels: {app: db}}]}]";

impl Scene {
    fn hosts(&self, v6: bool) -> [SocketAddr; 2] {
        [&self.db, &self.stranger].map(|name| SocketAddr::new(self.world.address(name, v6), PORT))
    }
}

pub fn family(v6: bool) -> AddressFamily {
    if v6 { AddressFamily::INET6 } else { AddressFamily::INET }
}

fn receiver(v6: bool) -> UdpSocket {
    let socket = UdpSocket::bind(at(if v6 { "::" } else { "0.0.0.0" }, PORT)).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

/// A header of UDP before one byte, with no checksum where that is allowed.
fn datagram() -> Vec<u8> {
    [&PORT.to_be_bytes()[..], &PORT.to_be_bytes(), &9u16.to_be_bytes(), &[0, 0], b"!"].concat()
}

/// The kernel makes the header of IP, and of IPv6 the checksum, too.
fn raw(v6: bool) -> OwnedFd {
    let socket = socket(family(v6), SocketType::RAW, Some(ipproto::UDP)).unwrap();
    if v6 {
        let at_byte: i32 = 6;
        super::caller::set_number(&socket, libc::IPPROTO_IPV6, 7 /* IPV6_CHECKSUM */, at_byte).unwrap();
    }
    socket
}

fn send_raw(socket: &OwnedFd, to: SocketAddr) -> Result<(), Errno> {
    sendto(socket, &datagram(), SendFlags::empty(), &SocketAddr::new(to.ip(), 0)).map(drop)
}

/// With CAP_NET_RAW.
#[test]
fn what_a_raw_socket_sends_is_evaluated_as_a_datagram_is() {
    let mut scene = Scene::new();
    for has_policy in [false, true] {
        if has_policy {
            scene.policy(
                "web",
                "egress: [{action: allow, to: [{labels: {app: db}}], ports: [{port: 9000, protocol: UDP}]}]",
            );
        }
        for v6 in [false, true] {
            let hosts = scene.hosts(v6);
            let receivers =
                [&scene.db, &scene.stranger].map(|name| scene.world.pods[name].namespace.run(|| receiver(v6)));
            let sent = scene.world.pods[&scene.web].namespace.run(|| hosts.map(|to| send_raw(&raw(v6), to)));
            let expected = if has_policy { Err(Errno::PERM) } else { Ok(()) };
            assert_eq!(sent, [Ok(()), expected], "IPv6 {v6}");
            let heard = receivers.map(|receiver| receiver.recv(&mut [0; 8]).is_ok());
            assert_eq!(heard, [true, !has_policy], "IPv6 {v6}");
        }
    }
    // With a header of one's own, and another one's source.
    let IpAddr::V4(from) = scene.world.address(&scene.db, false) else { panic!() };
    let IpAddr::V4(to) = scene.world.address(&scene.stranger, false) else { panic!() };
    let sent = scene.world.pods[&scene.web].namespace.run(|| {
        let socket = socket(AddressFamily::INET, SocketType::RAW, Some(Protocol::from_raw(255.try_into().unwrap())));
        sendto(socket.unwrap(), &headed(from, to), SendFlags::empty(), &SocketAddr::new(to.into(), 0))
    });
    assert_eq!(sent, Err(Errno::PERM));
}

/// An IPv4 header before [`datagram`]; the kernel fills in what is 0.
fn headed(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let length = 20 + datagram().len() as u16;
    let header = [&[0x45, 0][..], &length.to_be_bytes(), &[0, 0, 0, 0, 64, 17, 0, 0], &from.octets(), &to.octets()];
    [&header.concat()[..], &datagram()].concat()
}

/// Of the IPv4 header.
fn with_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    let sum: u32 = packet[..20].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

#[test]
fn a_raw_socket_hears_nothing_that_its_pod_may_not_receive() {
    let mut scene = Scene::new();
    scene.policy("db", "ingress: [{action: allow, from: [{labels: {app: web}}]}]");
    for v6 in [false, true] {
        let to = scene.hosts(v6)[0];
        for (sender, is_heard) in [(&scene.web, true), (&scene.stranger, false)] {
            let hearing = scene.world.pods[&scene.db].namespace.run(|| raw(v6));
            set_socket_timeout(&hearing, Timeout::Recv, Some(SOON)).unwrap();
            let any = at(if v6 { "::" } else { "0.0.0.0" }, 0);
            as_nobody(&scene.world.pods[sender], || UdpSocket::bind(any).unwrap().send_to(b"!", to).unwrap());
            assert_eq!(recvfrom(&hearing, &mut [0; 64], RecvFlags::empty()).is_ok(), is_heard, "{sender} {to}");
        }
    }
}

/// A packet socket sends past all that the kernel's network stack has: the sender's rules are not asked. The receiver's are.
#[test]
fn what_a_packet_socket_sends_is_evaluated_at_the_receiver_alone() {
    let mut scene = Scene::new();
    let to = scene.hosts(false)[1];
    // The two are neighbours: each knows the other's station.
    let place = scene.world.place(&scene.stranger, Family::V4, PORTS[0]);
    assert_eq!(scene.world.call(&scene.web, place, Tcp), Seen::Reached);
    scene.policy("web", CLOSED);
    let (IpAddr::V4(from), IpAddr::V4(host)) = (scene.world.address(&scene.web, false), to.ip()) else { panic!() };
    let packet = with_checksum(headed(from, host));
    let mut heard = Vec::new();
    for closed in [false, true] {
        if closed {
            scene.world.policy("stranger", "select: {matchLabels: {app: stranger}}, default: {ingress: deny}");
            scene.world.settle();
        }
        let receiver = scene.world.pods[&scene.stranger].namespace.run(|| receiver(false));
        let script = format!(
            "import socket\n\
             s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)\n\
             mac = [line.split()[3] for line in open('/proc/net/arp') if line.startswith('{} ')][0]\n\
             s.sendto(bytes({:?}), ('eth0', 0x800, 0, 1, bytes.fromhex(mac.replace(':', ''))))",
            to.ip(),
            packet
        );
        let mut command = std::process::Command::new("/usr/bin/python3");
        scene.world.pods[&scene.web].namespace.finish(command.args(["-c", &script]));
        heard.push(receiver.recv(&mut [0; 8]).is_ok());
    }
    assert_eq!(heard, [true, false], "as docs/policy.md says");
}

/// An echo request (ICMP), and whether it is answered.
pub fn ping(to: IpAddr) -> Result<bool, Errno> {
    let (kind, protocol) = if to.is_ipv6() { (128, ipproto::ICMPV6) } else { (8, ipproto::ICMP) };
    let socket = socket(family(to.is_ipv6()), SocketType::DGRAM, Some(protocol))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(SOON))?;
    sendto(&socket, &[kind, 0, 0, 0, 0, 1, 0, 1], SendFlags::empty(), &SocketAddr::new(to, 0))?;
    Ok(recvfrom(&socket, &mut [0; 64], RecvFlags::empty()).is_ok())
}

#[test]
fn a_ping_is_evaluated_as_any_other_protocol_and_its_answer_is_let_in() {
    let mut scene = Scene::new();
    scene.world.pods[&scene.web].namespace.run(|| {
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647").unwrap();
    });
    let pings = |scene: &Scene, v6| {
        let hosts = scene.hosts(v6).map(|to| to.ip());
        as_nobody(&scene.world.pods[&scene.web], || hosts.map(ping))
    };
    for v6 in [false, true] {
        assert_eq!(pings(&scene, v6), [Ok(true); 2], "without a policy");
    }
    scene.policy("web", "egress: [{action: allow, ports: [{protocol: TCP}, {protocol: UDP}]}]");
    for v6 in [false, true] {
        assert!(pings(&scene, v6).iter().all(|pinged| *pinged != Ok(true)), "no rule is about it");
    }
    // What comes in is closed as well: an answer is let in, and so is what tells of errors.
    scene.policy("web", &format!("{CLOSED}, ingress: [{{action: allow, from: [{{cidr: 192.0.2.1/32}}]}}]"));
    for v6 in [false, true] {
        let [allowed, forbidden] = pings(&scene, v6);
        assert_eq!(allowed, Ok(true));
        // Of ICMPv6 the kernel does not tell the sender.
        assert_eq!(forbidden, if v6 { Ok(false) } else { Err(Errno::PERM) });
    }
}

/// RFC 8335: a request that any process may send by a ping socket, and an answer that it gets there.
#[test]
fn an_extended_ping_is_evaluated_too() {
    let mut scene = Scene::new();
    scene.world.pods[&scene.web].namespace.run(|| {
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647").unwrap();
    });
    let sends = |scene: &Scene| {
        let to = scene.hosts(false)[1].ip();
        as_nobody(&scene.world.pods[&scene.web], || {
            let socket = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP)).unwrap();
            sendto(&socket, &[42, 0, 0, 0, 0, 1, 1, 1], SendFlags::empty(), &SocketAddr::new(to, 0))
        })
    };
    assert_eq!(sends(&scene), Ok(8), "without a policy");
    scene.policy("web", CLOSED);
    assert_eq!(sends(&scene), Err(Errno::PERM));
}

/// Where the kernel has one of them, it is evaluated by rules without ports; else nobody has one.
#[test]
fn no_other_protocol_reaches_a_forbidden_host() {
    let mut scene = Scene::new();
    scene.policy("web", CLOSED);
    let protocols: [(u32, SocketType); 6] = [
        (132, SocketType::STREAM), // SCTP
        (132, SocketType::SEQPACKET),
        (33, SocketType::from_raw(6)), // DCCP
        (136, SocketType::DGRAM),      // UDP-Lite
        (115, SocketType::DGRAM),      // L2TP
        (256, SocketType::STREAM),     // SMC, as a protocol of its own family
    ];
    for v6 in [false, true] {
        let forbidden = scene.hosts(v6)[1];
        as_nobody(&scene.world.pods[&scene.web], || {
            for (number, kind) in protocols {
                let protocol = Protocol::from_raw(number.try_into().unwrap());
                let Ok(socket) = socket(family(v6), kind, Some(protocol)) else { continue };
                sockopt::set_socket_timeout(&socket, Timeout::Send, Some(SOON)).unwrap();
                let connected = rustix::net::connect(&socket, &forbidden);
                let sent = connected.and_then(|()| rustix::net::send(&socket, b"!", SendFlags::empty()));
                assert!(sent.is_err(), "protocol {number}, IPv6 {v6}");
            }
        });
    }
}
