//! Datagrams have no handshake: a datagram is an answer if it follows an allowed one in the other direction.

use super::probe::{Family, Seen, call, seen, unconnected};
use super::world::{PORTS, World};
use crate::sockets::{at, hear, socket};
use sidestep_mesh::address::Protocol::Udp;
use sidestep_mesh::policy::identity::NODE;
use sidestep_mesh::policy::plan::Known;
use std::collections::BTreeMap;

#[test]
fn answers_come_in_through_a_closed_door_and_nothing_else() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("closed", "select: {matchLabels: {app: web}}, default: {ingress: deny}");
    world.settle();
    let to = world.place(&db, Family::V4, PORTS[0]);
    let asking = world.pods[&web].namespace.run(|| {
        assert_eq!(seen(unconnected(to)), Seen::Reached);
        let asking = socket();
        asking.send_to(b"?", to).unwrap();
        asking
    });
    assert_eq!(hear(&asking).1, to);
    // Another port of the same host is not the asked one.
    let home = asking.local_addr().unwrap().port();
    let at = std::net::SocketAddr::new(world.address(&web, false), home);
    assert_eq!(world.call(&db, at, Udp), Seen::Refused);
}

#[test]
fn a_server_answers_though_it_may_not_call() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("mute", "select: {matchLabels: {app: db}}, default: {egress: deny}");
    world.settle();
    let [to, from] = [&db, &web].map(|name| world.place(name, Family::V4, PORTS[0]));
    assert_eq!(world.call(&web, to, Udp), Seen::Reached);
    assert_eq!(world.pods[&db].namespace.run(|| call(from, Udp)), Seen::Refused);
}

/// The node's datagrams come in whatever policies say, so the answers go out.
#[test]
fn a_server_that_may_not_call_answers_its_node() {
    let mut world = World::new();
    let [db] = world.apps(["db"]);
    world.policy("mute", "select: {matchLabels: {app: db}}, default: {ingress: deny, egress: deny}");
    world.settle();
    let node = ["10.244.0.1", "fd00:244::1"].map(|ip| at(ip, 9000));
    let known = node.map(|at| (at.ip().into(), Known { identity: NODE, requires_proxy: false }));
    world.policies.write_identities(&BTreeMap::from(known)).unwrap();
    for family in Family::ALL {
        let to = world.place(&db, family, PORTS[0]);
        assert_eq!(world.node.testbed.node.run(|| call(to, Udp)), Seen::Reached, "{to}");
    }
    for at in node {
        assert_eq!(world.call(&db, at, Udp), Seen::Refused, "{at}");
    }
}

#[test]
fn a_connect_that_is_refused_leaves_a_socket_with_its_peer() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let backend = world.address(&db, false);
    world.node.service("other", Udp, "10.96.0.10", 80, [(backend, PORTS[1])]);
    let open = format!("egress: [{{action: allow, ports: [{{port: {}, protocol: UDP}}]}}]", PORTS[0]);
    world.policy("one", &format!("select: {{matchLabels: {{app: web}}}}, {open}"));
    world.settle();
    let to = world.place(&db, Family::V4, PORTS[0]);
    world.pods[&web].namespace.run(|| {
        let asking = socket();
        asking.connect(to).unwrap();
        for forbidden in [std::net::SocketAddr::new(backend, PORTS[1]), at("10.96.0.10", 80)] {
            assert_eq!(asking.connect(forbidden).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
            assert_eq!(asking.peer_addr().unwrap(), to);
            asking.send(b"?").unwrap();
            assert_eq!(hear(&asking).1, to);
        }
    });
    assert_eq!(world.node.open(backend, PORTS[1]), 0);
}
