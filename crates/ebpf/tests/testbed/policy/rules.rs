//! Single rules, and what policies never evaluate.

use super::probe::{Family, Seen};
use super::world::{PORTS, World};
use crate::sockets::at;
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use std::net::SocketAddr;

const BOTH: [sidestep_mesh::address::Protocol; 2] = [Tcp, Udp];

#[test]
fn what_stays_inside_a_pod_is_free() {
    let mut world = World::new();
    let web = world.pod("shop", "web", Some("{app: web}"));
    world.policy("nothing", "default: {egress: deny, ingress: deny}");
    world.settle();
    let own = [world.address(&web, false), world.address(&web, true)].map(|ip| SocketAddr::new(ip, 8080));
    let loopback = ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"].map(|ip| at(ip, 8080));
    for to in own.into_iter().chain(loopback) {
        for protocol in BOTH {
            assert_eq!(world.call(&web, to, protocol), Seen::Reached, "{protocol} {to}");
        }
    }
    assert_eq!(world.counted(["policy-denied-out", "policy-denied-in"]), [0, 0]);
}

#[test]
fn a_service_is_evaluated_by_the_backend_that_was_chosen() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let backend = world.address(&db, false);
    for protocol in BOTH {
        world.node.service(&format!("db{protocol}").to_lowercase(), protocol, "10.96.0.10", 80, [(backend, 8080)]);
    }
    let vip = at("10.96.0.10", 80);
    // A rule that names the Service's own address and port matches nothing.
    world.policy(
        "one",
        "select: {matchLabels: {app: web}}, egress: [{action: allow, to: [{cidr: 10.96.0.0/16}], ports: [{port: 80}]}]",
    );
    world.settle();
    for protocol in BOTH {
        assert_eq!(world.call(&web, vip, protocol), Seen::Refused);
    }
    assert_eq!(world.node.open(backend, 8080), 0, "what was refused does not count as connected");
    let db_peer =
        "egress: [{action: allow, to: [{labels: {app: db}}], ports: [{port: 8080}, {port: 8080, protocol: UDP}]}]";
    world.policy("one", &format!("select: {{matchLabels: {{app: web}}}}, {db_peer}"));
    world.settle();
    for protocol in BOTH {
        assert_eq!(world.call(&web, vip, protocol), Seen::Reached);
    }
}

#[test]
fn every_address_of_a_pod_is_its_identity_and_of_nobody_else() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let stranger = world.pod("bank", "stranger", None);
    world.policy("db", "select: {matchLabels: {app: db}}, ingress: [{action: allow, from: [{labels: {app: web}}]}]");
    world.settle();
    for family in Family::ALL {
        for protocol in BOTH {
            let to = world.place(&db, family, PORTS[0]);
            assert_eq!(world.call(&web, to, protocol), Seen::Reached, "{family:?} {protocol}");
            assert_eq!(world.call(&stranger, to, protocol), Seen::Refused, "{family:?} {protocol}");
        }
    }
    let [_, into] = world.counted(["policy-denied-out", "policy-denied-in"]);
    assert_eq!(into, 6);
}

#[test]
fn what_is_dropped_meets_silence() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("quiet", "select: {matchLabels: {app: db}}, default: {egress: deny, ingress: deny}, onDeny: drop");
    world.settle();
    for family in Family::ALL {
        for protocol in BOTH {
            assert_eq!(world.call(&web, world.place(&db, family, PORTS[0]), protocol), Seen::Silence, "{protocol}");
            assert_eq!(world.call(&db, world.place(&web, family, PORTS[0]), protocol), Seen::Unreachable, "{protocol}");
        }
    }
}
