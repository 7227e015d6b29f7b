//! A source route leads a packet first to another host than the address that rules are about. That host may be one that the pod may not
//! call, and may even have that address.

use super::caller::{SOON, as_nobody, control_message, error_of, send_with, set_option};
use crate::capture::world::{self, rules};
use crate::node;
use crate::policy::probe::Family;
use crate::policy::world::{PORTS, World};
use crate::sockets::{at, fresh, greeted};
use rustix::net::{SocketType, connect};
use sidestep_mesh::object::Name;
use sidestep_testkit::Pod;
use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

const IPV6_2292PKTOPTIONS: libc::c_int = 6;
const IPV6_2292RTHDR: libc::c_int = 5;
const IPV6_RTHDR: libc::c_int = 57;
const IPV6_FLOWLABEL_MGR: libc::c_int = 32;
const IP_OPTIONS: libc::c_int = 4;

/// The addresses that the policy allows. The forbidden host has them, too.
const CLAIMED: [&str; 2] = ["10.244.77.7", "fd00:244::77"];

/// A pod that may call only [`CLAIMED`], and a forbidden host that accepts source routes.
struct Scene {
    world: World,
    attacker: Name,
    forbidden: Name,
}

impl Scene {
    fn new() -> Scene {
        let mut world = World::new();
        let [attacker, forbidden] = world.apps(["web", "db"]);
        takes_source_routes(&world.pods[&forbidden]);
        Scene { world, attacker, forbidden }
    }

    /// Puts the attacker's policy into force.
    fn evaluate(&mut self) {
        let allowed =
            CLAIMED.map(|ip| format!("{{cidr: '{ip}/{}'}}", if ip.contains(':') { 128 } else { 32 })).join(", ");
        self.world.policy(
            "one",
            &format!("select: {{matchLabels: {{app: web}}}}, egress: [{{action: allow, to: [{allowed}]}}]"),
        );
        self.world.settle();
    }

    fn by(&self, v6: bool) -> IpAddr {
        self.world.address(&self.forbidden, v6)
    }

    /// An IPv6 route needs no privilege; an IPv4 option needs CAP_NET_RAW, which many pods have.
    fn attack<T: Send>(&self, v6: bool, work: impl FnOnce() -> T + Send) -> T {
        let pod = &self.world.pods[&self.attacker];
        if v6 { as_nobody(pod, work) } else { pod.namespace.run(work) }
    }

    fn refused(&self) -> u64 {
        self.world.node.reason("source-routed")
    }
}

fn takes_source_routes(pod: &Pod) {
    for address in CLAIMED {
        let (family, rest) = if address.contains(':') { ("-6 ", "/128 dev lo nodad") } else { ("", "/32 dev lo") };
        pod.namespace.ip(&format!("{family}addr add {address}{rest}"));
    }
    pod.namespace.run(|| {
        for device in ["all", "eth0"] {
            fs::write(format!("/proc/sys/net/ipv6/conf/{device}/seg6_enabled"), "1").unwrap();
            fs::write(format!("/proc/sys/net/ipv4/conf/{device}/accept_source_route"), "1").unwrap();
        }
    });
}

/// A segment routing header (RFC 8754): through this host to the packet's destination.
fn segments(by: Ipv6Addr) -> Vec<u8> {
    const KIND: u8 = 4;
    let (length, left, last) = (4, 1, 1); // in eight bytes beyond the first; of two segments
    [&[0, length, KIND, left, last, 0, 0, 0][..], &[0; 16], &by.octets()].concat()
}

/// Routing headers of types 0 and 2 (RFC 2460, RFC 6275).
fn old_route(kind: u8, by: Ipv6Addr) -> Vec<u8> {
    [&[0, 2, kind, 1, 0, 0, 0, 0][..], &by.octets()].concat()
}

/// A loose or a strict source route (RFC 791).
fn route_option(kind: u8, by: IpAddr) -> Vec<u8> {
    let IpAddr::V4(by) = by else { panic!("{by}") };
    [&[kind, 7, 4][..], &by.octets(), &[0]].concat()
}

const LOOSE: u8 = 131;
const STRICT: u8 = 137;

fn routed(kind: SocketType, by: IpAddr) -> OwnedFd {
    let socket = fresh(kind, by.is_ipv6());
    match by {
        IpAddr::V6(by) => set_option(&socket, libc::IPPROTO_IPV6, IPV6_RTHDR, &segments(by)).unwrap(),
        IpAddr::V4(_) => set_option(&socket, libc::IPPROTO_IP, IP_OPTIONS, &route_option(LOOSE, by)).unwrap(),
    }
    socket
}

fn claimed(v6: bool, port: u16) -> SocketAddr {
    at(CLAIMED[usize::from(v6)], port)
}

/// What a stream along that route reads.
fn stream(by: IpAddr) -> io::Result<String> {
    let socket = routed(SocketType::STREAM, by);
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Send, Some(SOON))?;
    connect(&socket, &claimed(by.is_ipv6(), PORTS[0]))?;
    let mut said = String::new();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(SOON))?;
    stream.read_to_string(&mut said)?;
    Ok(said)
}

/// What a datagram along that route gets as an answer, from any host.
fn datagram(by: IpAddr) -> io::Result<usize> {
    let socket = UdpSocket::from(routed(SocketType::DGRAM, by));
    socket.set_read_timeout(Some(SOON))?;
    socket.send_to(b"?", claimed(by.is_ipv6(), PORTS[0]))?;
    socket.recv(&mut [0; 64])
}

/// Without rules a pod may use source routes. This proves that the testbed would deliver them.
#[test]
fn the_way_is_there_for_a_pod_without_rules() {
    let scene = Scene::new();
    for v6 in [false, true] {
        let by = scene.by(v6);
        let (said, heard) = scene.attack(v6, || (stream(by), datagram(by)));
        assert!(!said.unwrap().is_empty() && heard.unwrap() > 0, "by {by}");
    }
    assert_eq!(scene.refused(), 0);
}

#[test]
fn a_socket_with_a_source_route_is_refused_to_a_pod_under_policy() {
    let mut scene = Scene::new();
    scene.evaluate();
    for v6 in [false, true] {
        let by = scene.by(v6);
        let errors = scene.attack(v6, || {
            let connected = connect(routed(SocketType::DGRAM, by), &claimed(v6, PORTS[0]));
            [error_of(stream(by)), error_of(datagram(by)), error_of(connected.map_err(io::Error::from))]
        });
        assert_eq!(errors, [libc::EACCES; 3], "by {by}");
    }
    assert_eq!(scene.refused(), 6);
    let strict = scene.by(false);
    let error = scene.attack(false, || {
        let socket = fresh(SocketType::STREAM, false);
        set_option(&socket, libc::IPPROTO_IP, IP_OPTIONS, &route_option(STRICT, strict)).unwrap();
        connect(&socket, &claimed(false, PORTS[0]))
    });
    assert_eq!(error, Err(rustix::io::Errno::ACCESS));
}

/// A pod's own address is never evaluated, so a source route to it is refused.
#[test]
fn a_source_route_to_the_own_address_is_refused() {
    let mut scene = Scene::new();
    scene.evaluate();
    for v6 in [false, true] {
        let (by, own) = (scene.by(v6), scene.world.address(&scene.attacker, v6));
        for to in [own, if v6 { at("::1", 0) } else { at("127.0.0.1", 0) }.ip()] {
            let to = SocketAddr::new(to, PORTS[0]);
            let error = scene.attack(v6, || connect(routed(SocketType::STREAM, by), &to));
            assert_eq!(error, Err(rustix::io::Errno::ACCESS), "{to}");
        }
    }
}

#[test]
fn a_source_route_that_comes_after_connect_carries_nothing() {
    let mut scene = Scene::new();
    let friend = scene.world.pod("shop", "friend", Some("{app: friend}"));
    scene.world.policy(
        "one",
        "select: {matchLabels: {app: web}}, egress: [{action: allow, to: [{labels: {app: friend}}, {cidr: 'fd00:244::77/128'}]}]",
    );
    scene.world.settle();
    let (by, friend) = (scene.by(true), SocketAddr::new(scene.world.address(&friend, true), PORTS[0]));
    let IpAddr::V6(route) = by else { panic!("{by}") };
    let (error, before) = scene.attack(true, || {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        socket.connect(friend).unwrap();
        let before = socket.send(b"?");
        set_option(&socket, libc::IPPROTO_IPV6, IPV6_RTHDR, &segments(route)).unwrap();
        (error_of(socket.send(b"?")), before)
    });
    assert_eq!((error, before.unwrap()), (libc::EPERM, 1));
    assert_eq!(scene.refused(), 1);
    // A stream stalls: none of its packets leaves.
    let stream = scene.attack(true, || TcpStream::connect(friend).unwrap());
    set_option(&stream, libc::IPPROTO_IPV6, IPV6_RTHDR, &segments(route)).unwrap();
    scene.attack(true, || {
        use std::io::Write;
        (&stream).write_all(b"?").unwrap();
    });
    crate::sockets::until("the packet is refused", || scene.refused() > 1);
}

/// Tried without CAP_NET_RAW.
#[test]
fn the_kernel_gives_nobody_a_source_route_of_ipv4() {
    let scene = Scene::new();
    let by = scene.by(false);
    let errors = as_nobody(&scene.world.pods[&scene.attacker], || {
        [LOOSE, STRICT].map(|kind| {
            let socket = fresh(SocketType::STREAM, false);
            error_of(set_option(&socket, libc::IPPROTO_IP, IP_OPTIONS, &route_option(kind, by)))
        })
    });
    assert_eq!(errors, [libc::EPERM; 2]);
}

/// All other means of adding a header to a datagram; the kernel refuses most of them today.
#[test]
fn no_control_message_nor_flow_label_leads_elsewhere() {
    let mut scene = Scene::new();
    scene.evaluate();
    let IpAddr::V6(by) = scene.by(true) else { panic!() };
    let to = claimed(true, PORTS[0]);
    let headers = [segments(by), old_route(0, by), old_route(2, by)];
    let reached = scene.attack(true, || {
        let mut reached = Vec::new();
        for header in &headers {
            for kind in [IPV6_RTHDR, IPV6_2292RTHDR] {
                for connected in [false, true] {
                    let socket = UdpSocket::bind("[::]:0").unwrap();
                    socket.set_read_timeout(Some(SOON)).unwrap();
                    if connected {
                        socket.connect(to).unwrap();
                    }
                    let name = if connected { None } else { Some(to) };
                    let sent = send_with(&socket, name, (libc::IPPROTO_IPV6, kind), header);
                    if sent.and_then(|()| socket.recv(&mut [0; 64])).is_ok() {
                        reached.push(format!("control message {kind}, {header:?}"));
                    }
                }
                for option in [IPV6_RTHDR, IPV6_2292PKTOPTIONS] {
                    let socket = UdpSocket::bind("[::]:0").unwrap();
                    socket.set_read_timeout(Some(SOON)).unwrap();
                    let messages: Vec<u8> = control_message(libc::IPPROTO_IPV6, kind, header)
                        .into_iter()
                        .flat_map(u64::to_ne_bytes)
                        .collect();
                    let value = if option == IPV6_RTHDR { header } else { &messages };
                    let set = set_option(&socket, libc::IPPROTO_IPV6, option, value);
                    if set.and_then(|()| socket.send_to(b"?", to)).and_then(|_| socket.recv(&mut [0; 64])).is_ok() {
                        reached.push(format!("option {option}, {header:?}"));
                    }
                }
                if labelled(by, to, kind, header).is_ok() {
                    reached.push(format!("flow label, {kind}, {header:?}"));
                }
            }
        }
        reached
    });
    assert!(reached.is_empty(), "{reached:?}");
}

/// A flow label can carry options (`struct in6_flowlabel_req`).
fn labelled(_by: Ipv6Addr, to: SocketAddr, kind: libc::c_int, header: &[u8]) -> io::Result<usize> {
    let (get, create, process_only): (u8, u16, u8) = (0, 1, 2);
    let socket = UdpSocket::bind("[::]:0")?;
    socket.set_read_timeout(Some(SOON))?;
    let SocketAddr::V6(v6) = to else { panic!("{to}") };
    let mut request = v6.ip().octets().to_vec();
    request.extend(0u32.to_ne_bytes()); // any label
    request.extend([get, process_only]);
    request.extend(create.to_ne_bytes());
    request.extend([6u16, 60].map(u16::to_ne_bytes).concat()); // it lasts for so many seconds
    request.extend(0u32.to_ne_bytes());
    request.extend(control_message(libc::IPPROTO_IPV6, kind, header).into_iter().flat_map(u64::to_ne_bytes));
    set_option(&socket, libc::IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &request)?;
    let send_with_label = 33; // IPV6_FLOWINFO_SEND
    set_option(&socket, libc::IPPROTO_IPV6, send_with_label, &1i32.to_ne_bytes())?;
    socket.send_to(b"?", to)?;
    socket.recv(&mut [0; 64])
}

#[test]
fn a_socket_that_was_made_before_the_programs_is_refused_too() {
    let mut scene = Scene::new();
    scene.evaluate();
    let prepared = [false, true].map(|v6| {
        let by = scene.by(v6);
        sidestep_ebpf::services::remove(&scene.world.node.options.pins).unwrap();
        scene.attack(v6, || (v6, routed(SocketType::STREAM, by), routed(SocketType::DGRAM, by)))
    });
    // Installs everything anew.
    let (maps, reconciler) = node::install(&scene.world.node.options);
    (scene.world.node.maps, scene.world.node.reconciler) = (maps, reconciler);
    sidestep_ebpf::packets::install(&scene.world.node.options).unwrap();
    scene.world.policies = sidestep_ebpf::policy::Policies::open(&scene.world.node.options.pins).unwrap();
    scene.world.settle_anew();
    for (v6, stream, datagram) in &prepared {
        let to = claimed(*v6, PORTS[0]);
        let errors = scene.attack(*v6, || [connect(stream, &to), connect(datagram, &to)]);
        assert_eq!(errors, [Err(rustix::io::Errno::ACCESS); 2]);
    }
}

#[test]
fn a_captured_pod_cannot_go_around_its_proxy_by_one() {
    let mut world = world::World::new();
    let (attacker, forbidden) = (world.pod(), world.pod());
    takes_source_routes(&forbidden);
    let _server = world::program(&forbidden, PORTS[0]);
    let _proxy = world::proxy(&attacker);
    let dial = || {
        let by = |by: IpAddr| move || stream(by).map_err(|error| error.raw_os_error());
        [attacker.namespace.run(by(forbidden.v4)), as_nobody(&attacker, by(forbidden.v6))]
    };
    assert!(dial().iter().all(Result::is_ok), "{:?}", dial());
    world.capture(&attacker, &rules());
    assert_eq!(dial(), [Err(Some(libc::EACCES)), Err(Some(libc::EACCES))]);
    // Also with a policy that does not concern it: packets that are sent without an evaluation at a call, such as this datagram.
    let IpAddr::V6(by) = forbidden.v6 else { panic!() };
    let error = as_nobody(&attacker, || {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        set_option(&socket, libc::IPPROTO_IPV6, IPV6_RTHDR, &segments(by)).unwrap();
        error_of(socket.send_to(b"?", claimed(true, PORTS[0])))
    });
    assert_eq!(error, libc::EPERM);
}

/// Each segment has a timestamp of IP (RFC 791), with which the server's kernel answers, too.
fn stamped(to: SocketAddr) -> io::Result<()> {
    let socket = fresh(SocketType::STREAM, false);
    set_option(&socket, libc::IPPROTO_IP, IP_OPTIONS, &[68, 8, 5, 0, 0, 0, 0, 0])?;
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Send, Some(SOON))?;
    connect(&socket, &to)?;
    greeted(TcpStream::from(socket)).map(drop)
}

#[test]
fn a_connection_with_options_that_are_no_source_route_is_evaluated_as_any_other() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    for (app, allowed) in [("web", "egress"), ("db", "ingress")] {
        let closed = format!("select: {{matchLabels: {{app: {app}}}}}, default: {{egress: deny, ingress: deny}}");
        world.policy(app, &format!("{closed}, {allowed}: [{{action: allow}}]"));
    }
    world.settle();
    let call = |from: &Name, to: &Name| {
        let to = world.place(to, Family::V4, PORTS[0]);
        world.pods[from].namespace.run(|| stamped(to)).map_err(|error| error.kind())
    };
    assert_eq!(call(&web, &db), Ok(()));
    assert_eq!(call(&db, &web), Err(io::ErrorKind::ConnectionRefused));
}
