//! Clients dial without pause while endpoints change: none ever sees a half-made change. After each single write to the maps every
//! client makes a whole connection, so the result does not depend on timing.

use crate::node::{Node, backend, slice};
use crate::sockets::{ask, at, dial, echo, socket, until};
use sidestep_ebpf::plane::Maps;
use sidestep_mesh::address::Endpoint;
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_mesh::object::Object;
use sidestep_mesh::plane::{DataPlane, Existing, Frontend, FrontendKey, Member, Sizes, Slot, Source};
use sidestep_mesh::state::Change;
use sidestep_testkit::Pod;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const VIP: &str = "10.96.0.1";
/// Rounds through all sets of endpoints.
const ROUNDS: usize = 5;
/// After this time replaced entries may be freed.
const SECOND_NS: u64 = 1_000_000_000;

/// Clients of one kind: the number of their connections, and whether they have ended.
#[derive(Default)]
struct Clients {
    made: AtomicUsize,
    over: AtomicBool,
}

impl Clients {
    /// Dials until it is over. A client that fails says so, for those who wait.
    fn work(&self, over: &AtomicBool, mut once: impl FnMut()) {
        let _end = SetAtEnd(&self.over);
        while !over.load(Ordering::Relaxed) {
            once();
            self.made.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until a connection that was begun after this call has been made.
    fn pass(&self) {
        let before = self.made.load(Ordering::Relaxed);
        let met = || self.made.load(Ordering::Relaxed) >= before + 2 || self.over.load(Ordering::Relaxed);
        while !met() {
            std::thread::yield_now();
        }
    }
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The maps, with clients that check the effect of each write.
struct Watched<'a> {
    maps: &'a mut Maps,
    clients: &'a [Clients],
}

impl Watched<'_> {
    fn shown(&self, written: io::Result<()>) -> io::Result<()> {
        self.clients.iter().for_each(Clients::pass);
        written
    }
}

impl DataPlane for Watched<'_> {
    fn sizes(&self) -> Sizes {
        self.maps.sizes()
    }

    fn existing(&mut self) -> io::Result<Existing> {
        self.maps.existing()
    }

    fn clear_service(&mut self, service: u32) -> io::Result<()> {
        self.maps.clear_service(service)
    }

    fn put_backend(&mut self, number: u32, endpoint: Endpoint) -> io::Result<()> {
        let written = self.maps.put_backend(number, endpoint);
        self.shown(written)
    }

    fn put_slots(&mut self, first: u32, slots: &[Slot]) -> io::Result<()> {
        let written = self.maps.put_slots(first, slots);
        self.shown(written)
    }

    fn put_members(&mut self, members: &[Member]) -> io::Result<()> {
        let written = self.maps.put_members(members);
        self.shown(written)
    }

    fn put_sources(&mut self, sources: &[Source]) -> io::Result<()> {
        let written = self.maps.put_sources(sources);
        self.shown(written)
    }

    fn remove_sources(&mut self, sources: &[Source]) -> io::Result<()> {
        let written = self.maps.remove_sources(sources);
        self.shown(written)
    }

    fn put_frontends(&mut self, frontends: &[(FrontendKey, Frontend)]) -> io::Result<()> {
        let written = self.maps.put_frontends(frontends);
        self.shown(written)
    }

    fn remove_frontends(&mut self, keys: &[FrontendKey]) -> io::Result<()> {
        let written = self.maps.remove_frontends(keys);
        self.shown(written)
    }

    fn remove_members(&mut self, members: &[Member]) -> io::Result<()> {
        let written = self.maps.remove_members(members);
        self.shown(written)
    }

    fn wait_for_readers(&mut self) -> io::Result<()> {
        self.maps.wait_for_readers()
    }
}

/// All non-empty sets of the pods, in an order with growing, shrinking and disjoint neighbours.
fn sets(pods: &[Pod]) -> Vec<Vec<IpAddr>> {
    let all = (1u32..1 << pods.len()).map(|set| (set * 5) % (1 << pods.len()));
    let members = |set: u32| (0..pods.len()).filter(move |i| set & 1 << i != 0).map(|i| pods[i].v4);
    all.map(|set| members(set).collect()).collect()
}

/// Gives the Services each set of endpoints in turn.
fn change_all_the_time(node: &mut Node, sets: &[Vec<IpAddr>], clients: &[Clients]) {
    for round in 0..ROUNDS {
        for (set, (name, protocol)) in sets.iter().flat_map(|set| [(set, ("web", Tcp)), (set, ("dns", Udp))]) {
            let slice = slice(name, protocol, set.iter().map(|ip| (*ip, 8080)));
            let services = node.state.apply(Change::Put(Object::Slice(slice))).services;
            let mut watched = Watched { maps: &mut node.maps, clients };
            node.reconciler.apply(&node.state, services, &mut watched, round as u64 * SECOND_NS).unwrap();
        }
        // Frees replaced entries, so that the next round writes them again.
        node.reconciler.collect_garbage(&mut node.maps, (round as u64 + 1) * SECOND_NS).unwrap();
    }
}

#[test]
fn no_client_ever_sees_a_change() {
    let mut node = Node::new();
    let client = node.testbed.pod();
    let pods: Vec<_> = (0..4).map(|_| node.testbed.pod()).collect();
    let _servers: Vec<_> = pods.iter().map(|pod| backend(pod, 8080)).collect();
    let _echoes: Vec<_> = pods.iter().map(|pod| echo(pod, 8080)).collect();
    let everybody: BTreeSet<IpAddr> = pods.iter().map(|pod| pod.v4).collect();
    node.service("web", Tcp, VIP, 80, [(pods[0].v4, 8080)]);
    node.service("dns", Udp, VIP, 80, [(pods[0].v4, 8080)]);
    let (over, clients) = (AtomicBool::new(false), [Clients::default(), Clients::default(), Clients::default()]);
    let check = |(who, peer): (IpAddr, SocketAddr)| {
        assert!(everybody.contains(&who) && peer == at(VIP, 80), "{who} as {peer}");
    };
    std::thread::scope(|scope| {
        // Also ends the clients if a change fails.
        let _over = SetAtEnd(&over);
        scope.spawn(|| {
            client.namespace.enter();
            clients[0].work(&over, || check(dial(at(VIP, 80)).unwrap()));
        });
        scope.spawn(|| {
            client.namespace.enter();
            clients[1].work(&over, || check(ask(&socket(), at(VIP, 80))));
        });
        scope.spawn(|| {
            client.namespace.enter();
            let one = socket();
            clients[2].work(&over, || check(ask(&one, at(VIP, 80))));
        });
        until("the clients are at work", || clients.iter().all(|client| client.made.load(Ordering::Relaxed) > 0));
        change_all_the_time(&mut node, &sets(&pods), &clients);
    });
    assert_eq!((node.reason("refused"), node.reason("backend-missing")), (0, 0));
}
