//! What reaches a socket past the look-up of listeners: datagrams for a group or for all, other protocols, and sources that are
//! lies.

use super::caller::{SOON, as_nobody, send_with, set_number};
use super::scene::Scene;
use crate::policy::probe::{Family, Seen};
use crate::policy::world::{PORTS, World};
use crate::sockets::{at, until};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, SocketType, bind, ipproto, recvfrom, sendto, socket};
use sidestep_mesh::address::Protocol::Tcp;
use sidestep_mesh::object::Name;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::OwnedFd;

const PORT: u16 = 9000;
const IPV6_FREEBIND: libc::c_int = 78;
const IPV6_PKTINFO: libc::c_int = 50;
const UDP_LITE: Protocol = ipproto::UDPLITE;

/// What may be sent to the server's pod, by a policy for it; and each pod's addresses are known.
fn enforce(scene: &mut Scene, ingress: &str) {
    scene.policy("db", ingress);
    let admission = sidestep_ebpf::admission::Admission::open(&scene.world.node.options.pins).unwrap();
    for (name, pod) in &scene.world.pods {
        let path = pod.namespace.path();
        let cookie = sidestep_ebpf::netns::cookie_of(&path).unwrap();
        let network = sidestep_ebpf::capture::pod_network::read(&path).unwrap();
        scene.world.policies.know(cookie, &(&network).into()).unwrap_or_else(|error| panic!("{name}: {error}"));
        admission.admit(cookie).unwrap();
    }
}

impl Scene {
    /// Who of both is heard.
    fn heard(&self, protocol: Option<Protocol>, to: impl Fn(&Name) -> SocketAddr) -> [bool; 2] {
        [&self.web, &self.stranger].map(|sender| {
            let to = to(sender);
            let receiver = self.world.pods[&self.db].namespace.run(|| receiver(protocol, to.is_ipv6()));
            as_nobody(&self.world.pods[sender], || send(protocol, to)).unwrap();
            recvfrom(&receiver, &mut [0; 16], rustix::net::RecvFlags::empty()).is_ok()
        })
    }
}

fn receiver(protocol: Option<Protocol>, v6: bool) -> OwnedFd {
    let (family, any) = if v6 { (AddressFamily::INET6, "::") } else { (AddressFamily::INET, "0.0.0.0") };
    let receiver = socket(family, SocketType::DGRAM, protocol).unwrap();
    bind(&receiver, &at(any, PORT)).unwrap();
    set_socket_timeout(&receiver, Timeout::Recv, Some(SOON)).unwrap();
    receiver
}

fn send(protocol: Option<Protocol>, to: SocketAddr) -> io::Result<()> {
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let sender = socket(family, SocketType::DGRAM, protocol)?;
    rustix::net::sockopt::set_socket_broadcast(&sender, true)?;
    sendto(&sender, b"!", rustix::net::SendFlags::empty(), &to)?;
    Ok(())
}

const CLOSED: &str = "ingress: [{action: allow, from: [{labels: {app: web}}]}]";
const OPEN_BUT: &str = "ingress: [{action: deny, from: [{labels: {app: stranger}}]}]";

/// As a socket names them in its pod.
fn groups(world: &World, sender: &Name) -> [SocketAddr; 4] {
    let eth0 = world.pods[sender].namespace.run(interface_here);
    let scoped = |ip: &str| SocketAddrV6::new(ip.parse().unwrap(), PORT, 0, eth0).into();
    [at("10.244.255.255", PORT), at("255.255.255.255", PORT), at("224.0.0.1", PORT), scoped("ff02::1")]
}

#[test]
fn what_is_for_many_is_evaluated_by_its_sender() {
    let mut scene = Scene::new();
    for pod in scene.world.pods.values() {
        pod.namespace.ip("route add default dev eth0");
    }
    let count = 4;
    for number in 0..count {
        let heard = scene.heard(None, |sender| groups(&scene.world, sender)[number]);
        assert_eq!(heard, [true; 2], "without a policy: {number}");
    }
    for policy in [CLOSED, OPEN_BUT] {
        enforce(&mut scene, policy);
        for number in 0..2 {
            let heard = scene.heard(None, |sender| groups(&scene.world, sender)[number]);
            assert_eq!(heard, [true, false], "{policy}: {number}");
        }
        // The source is one of the link's, behind which anybody may be, or that of the sender.
        for number in 2..count {
            let heard = scene.heard(None, |sender| groups(&scene.world, sender)[number]);
            assert!(!heard[1], "{policy}: {number}");
        }
    }
}

#[test]
fn another_protocol_is_evaluated_by_rules_without_ports() {
    let mut scene = Scene::new();
    for v6 in [false, true] {
        let to = SocketAddr::new(scene.world.address(&scene.db, v6), PORT);
        assert_eq!(scene.heard(Some(UDP_LITE), |_| to), [true; 2], "without a policy");
    }
    for policy in [CLOSED, OPEN_BUT] {
        enforce(&mut scene, policy);
        for v6 in [false, true] {
            let to = SocketAddr::new(scene.world.address(&scene.db, v6), PORT);
            assert_eq!(scene.heard(Some(UDP_LITE), |_| to), [true, false], "{policy} {to}");
        }
    }
    enforce(&mut scene, "ingress: [{action: allow, ports: [{protocol: TCP}, {protocol: UDP}]}]");
    for v6 in [false, true] {
        let to = SocketAddr::new(scene.world.address(&scene.db, v6), PORT);
        assert_eq!(scene.heard(Some(UDP_LITE), |_| to), [false; 2], "a rule with ports is about other protocols");
    }
}

/// What a pod under policy sends by another protocol, connected or not.
#[test]
fn another_protocol_leaves_a_pod_only_where_it_may_go() {
    let mut scene = Scene::new();
    let connected = |scene: &Scene, to: SocketAddr| {
        as_nobody(&scene.world.pods[&scene.web], || {
            let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
            let sender = socket(family, SocketType::DGRAM, Some(UDP_LITE)).unwrap();
            rustix::net::connect(&sender, &to)?;
            rustix::net::send(&sender, b"!", rustix::net::SendFlags::empty()).map(drop)
        })
        .is_ok()
    };
    let named =
        |scene: &Scene, to: SocketAddr| as_nobody(&scene.world.pods[&scene.web], || send(Some(UDP_LITE), to)).is_ok();
    for (policy, expected) in [
        ("egress: [{action: allow, to: [{labels: {app: db}}]}]", [true, false]),
        ("egress: [{action: deny, to: [{labels: {app: stranger}}]}]", [true, false]),
        ("egress: [{action: allow, ports: [{protocol: UDP}]}]", [false, false]),
        ("default: {egress: deny}", [false, false]),
    ] {
        scene.world.policy("web", &format!("select: {{matchLabels: {{app: web}}}}, {policy}"));
        scene.world.settle();
        for v6 in [false, true] {
            let to = [&scene.db, &scene.stranger].map(|name| SocketAddr::new(scene.world.address(name, v6), PORT));
            assert_eq!(to.map(|to| named(&scene, to)), expected, "{policy} {v6}");
            assert_eq!(to.map(|to| connected(&scene, to)), expected, "connected: {policy} {v6}");
        }
    }
}

/// IPv6 lets a socket take any source address. Only its pod's own ones leave it.
#[test]
fn nobody_speaks_for_another() {
    let mut scene = Scene::new();
    enforce(&mut scene, CLOSED);
    let to = SocketAddr::new(scene.world.address(&scene.db, true), PORT);
    let lies = [&scene.web, &scene.db].map(|name| scene.world.address(name, true));
    let receiver = scene.world.pods[&scene.db].namespace.run(|| receiver(None, true));
    for lie in lies {
        let IpAddr::V6(v6) = lie else { panic!() };
        let errors = as_nobody(&scene.world.pods[&scene.stranger], || {
            let bound = socket(AddressFamily::INET6, SocketType::DGRAM, None).unwrap();
            set_number(&bound, libc::IPPROTO_IPV6, IPV6_FREEBIND, 1).unwrap();
            bind(&bound, &SocketAddr::new(lie, 0)).unwrap();
            let named = socket(AddressFamily::INET6, SocketType::DGRAM, None).unwrap();
            set_number(&named, libc::IPPROTO_IPV6, IPV6_FREEBIND, 1).unwrap();
            let info = [&v6.octets()[..], &0i32.to_ne_bytes()].concat();
            [
                sendto(&bound, b"!", rustix::net::SendFlags::empty(), &to).map_err(io::Error::from).map(drop),
                send_with(&named, Some(to), (libc::IPPROTO_IPV6, IPV6_PKTINFO), &info),
            ]
            .map(|outcome| outcome.unwrap_err().raw_os_error())
        });
        assert_eq!(errors, [Some(libc::EPERM); 2], "as {lie}");
    }
    assert_eq!(scene.world.node.reason("source-forged"), 4);
    assert!(recvfrom(&receiver, &mut [0; 16], rustix::net::RecvFlags::empty()).is_err());
    // Its own address is no lie.
    let own = scene.world.address(&scene.stranger, true);
    let to = SocketAddr::new(scene.world.address(&scene.web, true), PORT);
    let sent = as_nobody(&scene.world.pods[&scene.stranger], || {
        let bound = socket(AddressFamily::INET6, SocketType::DGRAM, None).unwrap();
        set_number(&bound, libc::IPPROTO_IPV6, IPV6_FREEBIND, 1).unwrap();
        bind(&bound, &SocketAddr::new(own, 0)).unwrap();
        sendto(&bound, b"!", rustix::net::SendFlags::empty(), &to)
    });
    assert_eq!(sent, Ok(1));
}

/// What lets a socket take another's address can be switched off again; the socket keeps the address.
#[test]
fn nobody_speaks_for_another_by_an_option_that_is_off_again() {
    let mut scene = Scene::new();
    enforce(&mut scene, CLOSED);
    for v6 in [false, true] {
        let to = SocketAddr::new(scene.world.address(&scene.db, v6), PORT);
        let receiver = scene.world.pods[&scene.db].namespace.run(|| receiver(None, v6));
        let lie = SocketAddr::new(scene.world.address(&scene.web, v6), 0);
        // By IPv4 it takes CAP_NET_RAW, which many containers have.
        let speak = || {
            let (family, option) = if v6 {
                (AddressFamily::INET6, (libc::IPPROTO_IPV6, IPV6_FREEBIND))
            } else {
                (AddressFamily::INET, (libc::IPPROTO_IP, libc::IP_TRANSPARENT))
            };
            let bound = socket(family, SocketType::DGRAM, None).unwrap();
            set_number(&bound, option.0, option.1, 1).unwrap();
            bind(&bound, &lie).unwrap();
            rustix::net::connect(&bound, &to).unwrap();
            set_number(&bound, option.0, option.1, 0).unwrap();
            rustix::net::send(&bound, b"!", rustix::net::SendFlags::empty())
        };
        let stranger = &scene.world.pods[&scene.stranger];
        let sent = if v6 { as_nobody(stranger, speak) } else { stranger.namespace.run(speak) };
        assert_eq!(sent, Err(rustix::io::Errno::PERM), "IPv6 {v6}");
        assert!(recvfrom(&receiver, &mut [0; 16], rustix::net::RecvFlags::empty()).is_err());
    }
    assert_eq!(scene.world.node.reason("source-forged"), 2);
}

/// Of a pod that the agent does not know nobody can tell whose address it takes. But it is never the receiver's own.
#[test]
fn nobody_speaks_as_the_receiver_itself() {
    let mut scene = Scene::new();
    scene.world.policy("db", &format!("select: {{matchLabels: {{app: db}}}}, {CLOSED}"));
    scene.world.settle();
    let own = scene.world.address(&scene.db, true);
    let link = link_local(&scene);
    // By then the two are neighbours.
    assert_eq!(
        scene.world.call(&scene.stranger, scene.world.place(&scene.db, Family::V6, PORTS[0]), Tcp),
        Seen::Refused
    );
    let receiver = scene.world.pods[&scene.db].namespace.run(|| receiver(None, true));
    as_nobody(&scene.world.pods[&scene.stranger], || {
        for (lie, to) in [(own, own), (link.into(), own)] {
            let bound = socket(AddressFamily::INET6, SocketType::DGRAM, None).unwrap();
            set_number(&bound, libc::IPPROTO_IPV6, IPV6_FREEBIND, 1).unwrap();
            let scope = interface_here();
            let IpAddr::V6(v6) = lie else { panic!() };
            bind(&bound, &SocketAddrV6::new(v6, 0, 0, scope)).unwrap();
            sendto(&bound, b"!", rustix::net::SendFlags::empty(), &SocketAddr::new(to, PORT)).unwrap();
        }
    });
    assert!(recvfrom(&receiver, &mut [0; 16], rustix::net::RecvFlags::empty()).is_err());
    assert_eq!(scene.world.node.reason("source-forged"), 2);
    // It may speak to itself.
    let from_itself = scene.world.pods[&scene.db].namespace.run(|| send(None, SocketAddr::new(own, PORT)));
    from_itself.unwrap();
    assert!(recvfrom(&receiver, &mut [0; 16], rustix::net::RecvFlags::empty()).is_ok());
}

/// The number of eth0.
fn interface_here() -> u32 {
    rustix::net::netdevice::name_to_index(UdpSocket::bind("0.0.0.0:0").unwrap(), "eth0").unwrap()
}

fn link_local(scene: &Scene) -> Ipv6Addr {
    let place = sidestep_ebpf::capture::pod_network::read(&scene.world.pods[&scene.db].namespace.path()).unwrap();
    let found = place.addresses.into_iter().find_map(|ip| match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(v6),
        _ => None,
    });
    found.expect("eth0 has one")
}

/// Under its link-local address a pod is nobody that rules could name: where they deny by name it is not reached, nor heard.
#[test]
fn a_link_local_address_hides_nobody() {
    let mut scene = Scene::new();
    let link = link_local(&scene);
    let reach = |scene: &Scene| {
        as_nobody(&scene.world.pods[&scene.web], || {
            let to = SocketAddrV6::new(link, 8080, 0, interface_here());
            let stream = std::net::TcpStream::connect_timeout(&to.into(), SOON);
            let datagram = send(None, to.into());
            [stream.is_ok(), datagram.is_ok()]
        })
    };
    until("the address is known to be the pod's alone", || reach(&scene) == [true; 2]);
    scene.world.policy("web", "select: {matchLabels: {app: web}}, egress: [{action: deny, to: [{labels: {app: db}}]}]");
    scene.world.settle();
    assert_eq!(reach(&scene), [false; 2]);
    scene.world.policy(
        "web",
        "select: {matchLabels: {app: web}}, egress: [{action: deny, to: [{labels: {app: stranger}}]}, {action: allow, to: [{cidr: 'fe80::/10'}]}]",
    );
    scene.world.settle();
    assert_eq!(reach(&scene), [true; 2], "if a rule says so");
    scene.world.forget_policies();
    scene
        .world
        .policy("db", "select: {matchLabels: {app: db}}, ingress: [{action: deny, from: [{labels: {app: web}}]}]");
    scene.world.settle();
    assert!(!reach(&scene)[0]);
}
