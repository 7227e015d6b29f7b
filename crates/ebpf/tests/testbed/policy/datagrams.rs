//! Datagrams have no handshake: a datagram is an answer if it follows an allowed one in the other direction.

use super::probe::{Seen, call, seen, unconnected};
use super::world::{PORTS, World};
use crate::sockets::{hear, socket};
use sidestep_mesh::address::Protocol::Udp;

#[test]
fn answers_come_in_through_a_closed_door_and_nothing_else() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("closed", "select: {matchLabels: {app: web}}, default: {ingress: deny}");
    world.settle();
    let to = world.place(&db, super::probe::Family::V4, PORTS[0]);
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
    let [to, from] = [&db, &web].map(|name| world.place(name, super::probe::Family::V4, PORTS[0]));
    assert_eq!(world.call(&web, to, Udp), Seen::Reached);
    assert_eq!(world.pods[&db].namespace.run(|| call(from, Udp)), Seen::Refused);
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
    let to = world.place(&db, super::probe::Family::V4, PORTS[0]);
    world.pods[&web].namespace.run(|| {
        let asking = socket();
        asking.connect(to).unwrap();
        for forbidden in [std::net::SocketAddr::new(backend, PORTS[1]), crate::sockets::at("10.96.0.10", 80)] {
            assert_eq!(asking.connect(forbidden).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
            assert_eq!(asking.peer_addr().unwrap(), to);
            asking.send(b"?").unwrap();
            assert_eq!(hear(&asking).1, to);
        }
    });
    assert_eq!(world.node.open(backend, PORTS[1]), 0);
}
