//! The same Services twice: by our programs, and by packet rules that are written from the Services without any of our
//! code, as kube-proxy would. Programs cannot tell which of the two they live with.
//!
//! A client's part of the rules is in its own namespace, where its packets begin. They are there only while this process
//! is outside of the cgroup to which our programs are attached: never do both work at once.

mod probe;
mod rules;
mod servers;
mod world;

use crate::node::Node;
use crate::sockets::at;
use probe::{Answers, Client};
use sidestep_mesh::state::Change;
use sidestep_testkit::Namespace;
use std::collections::BTreeMap;
use std::fs;
use world::World;

/// Each is a configuration of its own.
const SEEDS: std::ops::Range<u64> = 1..11;
const NODE: [&str; 2] = ["10.244.0.1", "fd00:244::1"];

/// What every client sees of every address, by client and address.
type Seen = BTreeMap<(&'static str, String), Answers>;

fn look(world: &World, clients: &[Client]) -> Seen {
    let all = clients.iter().flat_map(|client| client.look(world));
    all.collect()
}

/// With packet rules a packet needs a way to the Service's address before it gets another one.
fn give_routes(namespace: &Namespace, device: &str) {
    for range in ["10.96.0.0/16", "192.0.2.0/24", "198.51.100.0/24"] {
        namespace.ip(&format!("route add {range} dev {device}"));
    }
    for range in ["fd00:96::/64", "2001:db8::/64"] {
        namespace.ip(&format!("-6 route add {range} dev {device}"));
    }
}

#[test]
fn programs_see_what_they_would_see_of_kube_proxy() {
    let mut node = Node::new();
    let pods: Vec<_> = (0..3).map(|_| node.testbed.pod()).collect();
    let stranger = node.testbed.pod();
    let _servers: Vec<_> = pods.iter().flat_map(servers::all).collect();
    node.maps.set_node_addresses(&NODE.map(|ip| at(ip, 0).ip().into()).into(), |_| true).unwrap();
    // A client elsewhere, one that may be its own backend, and the node.
    give_routes(&stranger.namespace, "eth0");
    give_routes(&pods[0].namespace, "eth0");
    give_routes(&node.testbed.node, "br0");
    node.testbed.node.run(|| fs::write("/proc/sys/net/ipv4/conf/all/route_localnet", "1").unwrap());
    let (mut shared, mut refused) = (0, 0);
    for seed in SEEDS {
        let world = World::new(seed, &pods);
        node.change(Change::All(sidestep_mesh::yaml::parse(&world.yaml()).unwrap()));
        assert_eq!(node.reconciler.problems().count(), 0);
        let clients = [
            Client { name: "pod", namespace: &stranger.namespace, is_node: false },
            Client { name: "backend", namespace: &pods[0].namespace, is_node: false },
            Client { name: "node", namespace: &node.testbed.node, is_node: true },
        ];
        let ours = look(&world, &clients);
        let theirs = node.testbed.cgroup.outside(|| {
            let _rules: Vec<_> = clients.iter().map(|client| rules::load(client, &world)).collect();
            look(&world, &clients)
        });
        for (place, theirs) in &theirs {
            assert_eq!(&ours[place], theirs, "seed {seed}, {place:?}: left ours, right the rules'\n{}", world.yaml());
        }
        assert_eq!(ours.len(), theirs.len());
        assert!(ours.values().all(|answers| answers.others.is_empty()), "seed {seed}: {ours:?}");
        shared += ours.values().filter(|answers| answers.backends.len() > 1).count();
        refused += ours.values().filter(|answers| answers.refused).count();
    }
    assert!(shared > 100 && refused > 100, "too little was seen: {shared} shared, {refused} refused");
}
