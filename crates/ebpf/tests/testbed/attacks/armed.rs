//! An armed node: a namespace that is not admitted communicates with nobody, whether an agent runs or not.

use super::caller::{SOON, as_nobody};
use crate::policy::probe::{Family, Seen};
use crate::policy::world::{PORTS, World};
use crate::sockets::{at, fresh, until};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, connect, ipproto, sendto, socket};
use sidestep_ebpf::admission::Admission;
use sidestep_ebpf::policy::Policies;
use sidestep_ebpf::{netns, packets, services};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_mesh::object::Name;
use sidestep_mesh::policy::identity::NODE;
use sidestep_mesh::policy::plan::Known;
use sidestep_testkit::Pod;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

/// Two admitted pods, and one that is unknown to the agent.
struct Scene {
    world: World,
    admission: Admission,
    web: Name,
    db: Name,
    unknown: Name,
}

impl Scene {
    fn new() -> Scene {
        let mut world = World::new();
        let [web, db, unknown] = ["web", "db", "unknown"].map(|app| world.pod("shop", app, None));
        let admission = Admission::open(&world.node.options.pins).unwrap();
        let scene = Scene { world, admission, web, db, unknown };
        scene.admit(&scene.web);
        scene.admit(&scene.db);
        scene
    }

    fn cookie(&self, name: &Name) -> u64 {
        netns::cookie_of(&self.pod(name).namespace.path()).unwrap()
    }

    fn admit(&self, name: &Name) {
        self.admission.admit(self.cookie(name)).unwrap();
    }

    fn pod(&self, name: &Name) -> &Pod {
        &self.world.pods[name]
    }

    fn at(&self, name: &Name, v6: bool) -> SocketAddr {
        SocketAddr::new(self.world.address(name, v6), PORTS[0])
    }
}

#[test]
fn who_is_not_admitted_talks_with_nobody() {
    let scene = Scene::new();
    let all = |scene: &Scene, from: &Name, to: &Name| {
        [Tcp, Udp].map(|protocol| {
            Family::ALL.map(|family| scene.world.call(from, scene.world.place(to, family, PORTS[0]), protocol))
        })
    };
    assert_eq!(all(&scene, &scene.unknown, &scene.db), [[Seen::Reached; 3]; 2], "before the node is armed");
    scene.admission.arm(true).unwrap();
    for v6 in [false, true] {
        let to = scene.at(&scene.db, v6);
        let errors = as_nobody(scene.pod(&scene.unknown), || {
            let named = sendto(fresh(SocketType::DGRAM, v6), b"?", SendFlags::empty(), &to).map(drop);
            let lite = socket(
                if v6 { AddressFamily::INET6 } else { AddressFamily::INET },
                SocketType::DGRAM,
                Some(ipproto::UDPLITE),
            );
            let lite = sendto(lite.unwrap(), b"?", SendFlags::empty(), &to).map(drop);
            [connect(fresh(SocketType::STREAM, v6), &to), connect(fresh(SocketType::DGRAM, v6), &to), named, lite]
        });
        assert_eq!(errors, [Err(Errno::NETUNREACH); 4], "IPv6 {v6}");
    }
    assert_eq!(scene.world.node.reason("not-admitted-out"), 8);
    // Nor can anybody reach it.
    assert_eq!(all(&scene, &scene.web, &scene.unknown), [[Seen::Silence; 3]; 2]);
    assert!(scene.world.node.reason("not-admitted-in") > 0);
    // Other pods are not affected.
    assert_eq!(all(&scene, &scene.web, &scene.db), [[Seen::Reached; 3]; 2]);
    scene.admit(&scene.unknown);
    assert_eq!(all(&scene, &scene.unknown, &scene.db), [[Seen::Reached; 3]; 2]);
    assert_eq!(all(&scene, &scene.web, &scene.unknown), [[Seen::Reached; 3]; 2]);
    scene.admission.dismiss(scene.cookie(&scene.unknown)).unwrap();
    assert_eq!(scene.world.call(&scene.unknown, scene.at(&scene.db, false), Tcp), Seen::Unreachable);
    scene.admission.arm(false).unwrap();
    assert_eq!(all(&scene, &scene.unknown, &scene.db), [[Seen::Reached; 3]; 2]);
}

/// Both are needed to keep a starting pod, and the node, alive.
#[test]
fn the_loopback_and_the_node_talk_all_the_same() {
    let mut scene = Scene::new();
    let node = ["10.244.0.1", "fd00:244::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
    let known = node.map(|ip| (ip.into(), Known { identity: NODE, requires_proxy: false }));
    scene.world.policies.write_identities(&BTreeMap::from(known)).unwrap();
    scene.world.policies.use_identities().unwrap();
    scene.admission.arm(true).unwrap();
    for ip in ["127.0.0.1", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"] {
        for protocol in [Tcp, Udp] {
            assert_eq!(scene.world.call(&scene.unknown, at(ip, PORTS[0]), protocol), Seen::Reached, "{ip} {protocol}");
        }
    }
    for v6 in [false, true] {
        for to in [&scene.unknown, &scene.db] {
            let to = scene.at(to, v6);
            let said = scene.world.node.testbed.node.run(|| {
                let mut said = String::new();
                TcpStream::connect(to).unwrap().read_to_string(&mut said).unwrap();
                said
            });
            assert_eq!(said, to.ip().to_string(), "a probe");
        }
    }
}

#[test]
fn who_has_begun_before_sends_no_datagram_any_more_but_goes_on_with_a_connection() {
    let scene = Scene::new();
    for v6 in [false, true] {
        let any = at(if v6 { "::" } else { "0.0.0.0" }, 9000);
        let to = SocketAddr::new(scene.world.address(&scene.db, v6), 9000);
        let (listener, _hearing) =
            scene.pod(&scene.db).namespace.run(|| (TcpListener::bind(any).unwrap(), UdpSocket::bind(any).unwrap()));
        let (mut stream, datagram) = as_nobody(scene.pod(&scene.unknown), || {
            let datagram = UdpSocket::bind(if v6 { "[::]:0" } else { "0.0.0.0:0" }).unwrap();
            datagram.connect(to).unwrap();
            (TcpStream::connect(to).unwrap(), datagram)
        });
        let (mut served, _) = listener.accept().unwrap();
        datagram.send(b"?").unwrap();
        scene.admission.arm(true).unwrap();
        stream.write_all(b"!").unwrap();
        let mut heard = [0];
        served.read_exact(&mut heard).unwrap();
        served.write_all(&heard).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(datagram.send(b"?").unwrap_err().raw_os_error(), Some(libc::EPERM));
        scene.admission.arm(false).unwrap();
    }
}

/// No agent runs, and then a new one starts.
#[test]
fn it_holds_while_programs_and_tables_are_taken_over() {
    let mut scene = Scene::new();
    scene.admission.arm(true).unwrap();
    let to = scene.at(&scene.db, false);
    let path = scene.pod(&scene.unknown).namespace.path();
    let over = std::sync::atomic::AtomicBool::new(false);
    let options = scene.world.node.options.clone();
    let tried = std::thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            sidestep_testkit::enter(&path);
            let mut outcomes = [0u32; 2];
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                outcomes[usize::from(TcpStream::connect_timeout(&to, SOON).is_ok())] += 1;
            }
            outcomes
        });
        for _ in 0..3 {
            services::install(&options, |_| Ok(())).unwrap();
            packets::install(&options).unwrap();
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        attacker.join().unwrap()
    });
    assert!(tried[0] > 100 && tried[1] == 0, "{tried:?}");
    scene.world.policies = Policies::open(&options.pins).unwrap();
    scene.world.settle_anew();
    assert!(Admission::open(&options.pins).unwrap().is_armed().unwrap());
    assert_eq!(scene.world.call(&scene.unknown, to, Tcp), Seen::Unreachable);
    assert_eq!(scene.world.call(&scene.web, to, Tcp), Seen::Reached);
    until("the tables are as they were", || scene.admission.count() == 2);
}
