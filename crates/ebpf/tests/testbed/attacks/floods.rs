//! One pod uses up its share of the tables that all pods of the node share: only that pod suffers, and only while it continues.
//!
//! A connection stays on its way to the proxy while the proxy's accept queue is full; the attacker's proxy accepts nothing.

use super::caller::{NOBODY, as_nobody};
use crate::capture::world::{OUTBOUND, World, any, dial_as, of, program, proxy, rules};
use crate::sockets::{fresh, until};
use ipnet::{IpNet, Ipv4Net};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, connect, connect_unspec, getpeername, ipproto, listen, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sidestep_ebpf::capture::{Captures, pod_network};
use sidestep_ebpf::layout::VERSION;
use sidestep_ebpf::{netns, services};
use sidestep_error::chain;
use sidestep_mesh::capture::rules::Rules;
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{PROXY, as_owner};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// `MOST_PENDING`
const BUDGET: usize = 4096;

struct Scene {
    world: World,
    attacker: Pod,
    victim: Pod,
    server: Pod,
}

impl Scene {
    fn new() -> Scene {
        let mut world = World::new();
        let [attacker, victim, server] = [world.pod(), world.pod(), world.pod()];
        world.capture(&attacker, &rules());
        world.capture(&victim, &rules());
        Scene { world, attacker, victim, server }
    }

    fn tables(&self) -> Tables {
        Tables(self.world.node.options.pins.clone())
    }

    fn to(&self, v6: bool) -> SocketAddr {
        of(if v6 { self.server.v6 } else { self.server.v4 }, 8080)
    }
}

/// The tables as root sees them, from any thread.
struct Tables(PathBuf);

impl Tables {
    fn map(&self, name: &str) -> MapHandle {
        MapHandle::from_pinned_path(self.0.join(format!("services/maps-{VERSION}")).join(name)).unwrap()
    }

    fn pending(&self) -> usize {
        self.map("pending").keys().count()
    }

    fn reason(&self, name: &str) -> u64 {
        let maps = services::tables(&self.0).unwrap().expect("they are installed");
        maps.reasons().unwrap().into_iter().find(|(reason, _)| *reason == name).unwrap().1
    }
}

/// A proxy that accepts nothing, and whose accept queue is full.
struct Full {
    _listeners: Vec<OwnedFd>,
    _connections: Vec<OwnedFd>,
}

impl Full {
    fn new(scene: &Scene) -> Full {
        let pod = &scene.attacker;
        let one = |at: SocketAddr| {
            let listener = fresh(SocketType::STREAM, at.is_ipv6());
            sockopt::set_socket_reuseaddr(&listener, true).unwrap();
            if at.is_ipv6() {
                sockopt::set_ipv6_v6only(&listener, true).unwrap();
            }
            bind(&listener, &at).unwrap();
            listen(&listener, 0).unwrap();
            listener
        };
        let listeners = pod.namespace.run(|| as_owner(PROXY, || any(OUTBOUND).map(one).into()));
        let fill = |to: SocketAddr| {
            // The queue has room for one.
            let (socket, _) = begun(to);
            until("a connection waits to be accepted", || getpeername(&socket).is_ok());
            socket
        };
        let to = [scene.to(false), scene.to(true)];
        let connections = as_nobody(pod, || to.map(fill).into());
        Full { _listeners: listeners, _connections: connections }
    }
}

/// Begins a connection.
fn begun(to: SocketAddr) -> (OwnedFd, Result<(), Errno>) {
    let socket = fresh(SocketType::STREAM, to.is_ipv6());
    rustix::io::ioctl_fionbio(&socket, true).unwrap();
    let outcome = connect(&socket, &to);
    (socket, outcome)
}

#[test]
fn a_socket_that_dials_again_and_again_has_one_entry_and_leaves_none() {
    let scene = Scene::new();
    let _proxies = (Full::new(&scene), proxy(&scene.victim));
    let _server = program(&scene.server, 8080);
    let tables = scene.tables();
    for v6 in [false, true] {
        let to = scene.to(v6);
        let socket = as_nobody(&scene.attacker, || {
            let socket = fresh(SocketType::STREAM, v6);
            rustix::io::ioctl_fionbio(&socket, true).unwrap();
            for round in 0..2 * BUDGET {
                assert_eq!(connect(&socket, &to), Err(Errno::INPROGRESS), "round {round}");
                connect_unspec(&socket).unwrap();
            }
            assert_eq!(connect(&socket, &to), Err(Errno::INPROGRESS));
            socket
        });
        assert_eq!(tables.pending(), 1);
        drop(socket);
        assert_eq!(tables.pending(), 0);
        assert_eq!(dial_as(&scene.victim, NOBODY, to).unwrap().seen.listener, OUTBOUND);
    }
    assert_eq!(scene.world.node.reason("orig-dst-not-stored"), 0);
}

#[test]
fn many_sockets_use_up_their_own_pods_budget_and_nobody_elses() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let scene = Scene::new();
    let tables = scene.tables();
    let _proxies = (Full::new(&scene), proxy(&scene.victim));
    let _server = program(&scene.server, 8080);
    for v6 in [false, true] {
        let to = scene.to(v6);
        let try_one = || as_nobody(&scene.attacker, || begun(to));
        let mut held = as_nobody(&scene.attacker, || {
            let one = |number| {
                let (socket, outcome) = begun(to);
                assert_eq!(outcome, Err(Errno::INPROGRESS), "socket {number}");
                socket
            };
            (0..BUDGET).map(one).collect::<Vec<_>>()
        });
        assert_eq!(tables.pending(), BUDGET);
        let before = tables.reason("too-many-pending");
        assert_eq!(try_one().1, Err(Errno::ADDRNOTAVAIL));
        assert_eq!(tables.reason("too-many-pending"), before + 1);
        // Other pods are not affected.
        assert_eq!(dial_as(&scene.victim, NOBODY, to).unwrap().seen.original, Some(to));
        // A connection that is given up makes room for one; so does one that is closed.
        connect_unspec(&held[0]).unwrap();
        assert_eq!(try_one().1, Err(Errno::INPROGRESS), "its socket is closed by now");
        drop(held.pop());
        let _one_more = try_one();
        assert_eq!(try_one().1, Err(Errno::INPROGRESS));
        drop((held, _one_more));
        assert_eq!(tables.pending(), 0);
    }
}

/// No hook reports the end of a socket that the kernel has created.
#[test]
fn a_multipath_socket_that_is_refused_leaves_nothing() {
    let scene = Scene::new();
    for v6 in [false, true] {
        let to = scene.to(v6);
        as_nobody(&scene.attacker, || {
            for _ in 0..50 {
                let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
                let socket = rustix::net::socket(family, SocketType::STREAM, Some(ipproto::MPTCP)).unwrap();
                assert_eq!(connect(&socket, &to), Err(Errno::CONNREFUSED), "nobody listens at the proxy's port");
            }
        });
        until("nothing is on its way", || scene.tables().pending() == 0);
    }
}

/// Removes leftovers of any origin, such as connections whose end was missed while programs were attached to another cgroup.
#[test]
fn a_new_life_heals_what_is_left() {
    let scene = Scene::new();
    let tables = scene.tables();
    let (pending, usages) = (tables.map("pending"), tables.map("usages"));
    let cookie = sidestep_ebpf::netns::cookie_of(&scene.attacker.namespace.path()).unwrap();
    // Older than any connection, by sockets that do not exist.
    for number in 0..100u8 {
        let mut key = vec![0; pending.key_size() as usize];
        key[..8].copy_from_slice(&cookie.to_ne_bytes());
        key[20] = number;
        pending.update(&key, &vec![0; pending.value_size() as usize], MapFlags::ANY).unwrap();
    }
    usages.update(&cookie.to_ne_bytes(), &(BUDGET as u64).to_ne_bytes(), MapFlags::ANY).unwrap();
    let to = scene.to(false);
    assert_eq!(as_nobody(&scene.attacker, || begun(to).1), Err(Errno::ADDRNOTAVAIL));
    let _next_life = Captures::open(&scene.world.node.options.pins).unwrap();
    assert_eq!(tables.pending(), 0);
    assert_eq!(as_nobody(&scene.attacker, || begun(to).1), Err(Errno::INPROGRESS));
}

/// Anybody may write annotations of 256 KiB, and have many pods.
#[test]
fn lists_of_one_tenant_leave_room_for_others() {
    let mut world = World::new();
    let [greedy, ordinary, server] = [world.pod(), world.pod(), world.pod()];
    let (_proxy, _server) = (proxy(&ordinary), program(&server, 8080));
    let path = greedy.namespace.path();
    let (cookie, network) = (netns::cookie_of(&path).unwrap(), pod_network::read(&path).unwrap());
    // Each of these counts as those of another pod, as long as nothing that was replaced is erased.
    let mut put = |number: u32, count: u32| {
        let range = |n: u32| Ipv4Net::new(Ipv4Addr::from_bits(0x6400_0000 + number * count + n), 32).unwrap();
        let exclude_outbound_ranges = (0..count).map(range).map(IpNet::V4).collect();
        let list = Rules { exclude_outbound_ranges, ..rules() };
        world.captures.put_deferred(&path, cookie, "greedy", &list, &network)
    };
    let error = chain(&put(0, 30_000).unwrap_err()).to_string();
    assert!(error.contains("map ranges") && error.contains("one pod may have 16384"), "{error}");
    // Together more than the table has room for.
    let refused: Vec<String> =
        (0..66).filter_map(|number| Some(chain(&put(number, 16_000).err()?).to_string())).collect();
    assert!(refused.len() > 30 && refused.iter().all(|error| error.contains("greedy")), "{refused:?}");
    world.capture(&ordinary, &rules());
    assert_eq!(dial_as(&ordinary, NOBODY, of(server.v4, 8080)).unwrap().seen.listener, OUTBOUND);
}
