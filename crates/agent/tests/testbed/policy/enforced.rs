//! Policy documents take effect.

use super::world::{ONLY_WEB, World, call, is_refused};
use crate::agent::at;
use crate::yaml;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

#[test]
fn both_directions_are_enforced_and_a_change_counts_at_once() {
    let mut world = World::new();
    assert!(call(&world.web, &world.db).is_ok() && call(&world.stranger, &world.db).is_ok());
    world.policy("db", ONLY_WEB, "db");
    assert!(call(&world.web, &world.db).is_ok() && is_refused(&world.stranger, &world.db));
    assert_eq!((world.node.counted("policy-denied-in"), world.node.counted("policy-denied-out")), (1, 0));
    // The event is logged with the names of both ends.
    world.node.wait(|node| node.log().contains("policy-denied-in"));
    let log = world.node.log();
    let line = log.lines().find(|line| line.contains("policy-denied-in")).unwrap();
    assert!(line.contains("default/db") && line.contains("default app=stranger"), "{line}");
    // Egress.
    world.policy(
        "web",
        "select: {matchLabels: {app: web}}, egress: [{action: deny, to: [{labels: {app: db}}]}]",
        "web",
    );
    assert!(is_refused(&world.web, &world.db) && call(&world.web, &world.stranger).is_err());
    assert_eq!((world.node.counted("policy-denied-in"), world.node.counted("policy-denied-out")), (1, 1));
    world.forget("web");
    world.forget("db");
    assert!(call(&world.web, &world.db).is_ok() && call(&world.stranger, &world.db).is_ok());
    let check = world.node.check();
    assert!(check.is_well() && check.enforced == 0, "{check:?}");
}

/// The wait for events is interrupted.
#[test]
fn an_agent_that_was_stopped_for_a_moment_goes_on_logging() {
    let mut world = World::new();
    world.policy("db", ONLY_WEB, "db");
    for denials in 1..=3 {
        assert!(is_refused(&world.stranger, &world.db));
        world.node.wait(|node| node.log().lines().filter(|line| line.contains("policy-denied-in")).count() == denials);
        world.node.interrupt();
    }
}

#[test]
fn a_connection_that_exists_goes_on() {
    let mut world = World::new();
    let at = SocketAddr::new(world.db.v4, 9000);
    let listener = world.db.namespace.run(|| TcpListener::bind(at).unwrap());
    let mut client = world.stranger.namespace.run(|| TcpStream::connect(at).unwrap());
    let (mut server, _) = listener.accept().unwrap();
    world.policy("db", ONLY_WEB, "db");
    assert!(world.stranger.namespace.run(|| TcpStream::connect(at)).is_err(), "a new one does not come to be");
    for round in 0..3_u8 {
        client.write_all(&[round]).unwrap();
        let mut got = [0];
        server.read_exact(&mut got).unwrap();
        server.write_all(&got).unwrap();
        client.read_exact(&mut got).unwrap();
        assert_eq!(got, [round]);
    }
}

/// Pods ask NodeLocal DNSCache by an address that is link-local, and not the node's for NodePorts.
#[test]
fn the_nodes_dns_cache_is_the_node() {
    let mut world = World::new();
    world.policy("web", "select: {matchLabels: {app: web}}, egress: [{action: allow, to: [{node: true}]}]", "web");
    assert!(is_refused(&world.web, &world.db));
    let World { node, web, .. } = &mut world;
    node.testbed.node.ip("link add nodelocaldns type bridge");
    node.testbed.node.ip("link set nodelocaldns up");
    node.testbed.node.ip("addr add 169.254.20.10/32 dev nodelocaldns");
    let cache = at("169.254.20.10", 53);
    let (listener, server) =
        node.testbed.node.run(|| (TcpListener::bind(cache).unwrap(), UdpSocket::bind(cache).unwrap()));
    node.wait(|_| web.namespace.run(|| TcpStream::connect(cache)).is_ok());
    listener.accept().unwrap();
    let client = web.namespace.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    }
    client.send_to(b"?", cache).unwrap();
    let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
    server.send_to(b"!", from).unwrap();
    assert_eq!(client.recv_from(&mut [0; 8]).unwrap(), (1, cache));
    let node_ports = node.status().unwrap().node_addresses;
    assert!(node_ports.iter().all(|address| !address.starts_with("169.254.")), "{node_ports:?}");
}

#[test]
fn a_dry_run_is_counted_and_told_and_forbids_nothing() {
    let mut world = World::new();
    world.policy("db", &format!("dryRun: true, {ONLY_WEB}"), "db");
    for _ in 0..3 {
        assert!(call(&world.stranger, &world.db).is_ok() && call(&world.web, &world.db).is_ok());
    }
    assert_eq!((world.node.counted("policy-would-deny-in"), world.node.counted("policy-denied-in")), (3, 0));
    assert!(world.node.metrics().contains("sidestep_events_total{reason=\"policy-would-deny-in\"} 3\n"));
    world.node.wait(|node| node.log().contains("policy-would-deny-in"));
}

#[test]
fn a_policy_that_does_not_fit_is_told_and_changes_nothing() {
    let mut world = World::new();
    world.policy("db", ONLY_WEB, "db");
    let mut rules = String::new();
    // Each rule has 65534 entries.
    (0..20).for_each(|i| {
        write!(rules, "{{action: allow, from: [{{cidr: 10.{i}.0.0/16}}], ports: [{{port: 1, endPort: 65534}}]}}, ")
            .unwrap();
    });
    let huge = format!("select: {{matchLabels: {{app: db}}}}, ingress: [{rules}]");
    world.node.file("policy-huge.yaml", &yaml::policy("huge", &huge));
    world.node.wait(|node| !node.check().problems.is_empty());
    let check = world.node.check();
    let problem = check.problems.iter().find(|problem| problem.contains("Capture default/db")).unwrap();
    assert!(problem.contains("map policy_ranges") && problem.contains("the table is full"), "{problem}");
    assert!(world.node.log().contains("map policy_ranges"));
    assert!(call(&world.web, &world.db).is_ok() && is_refused(&world.stranger, &world.db), "as it was");
    let pods = world.node.policies().pods;
    assert!(pods.iter().any(|pod| pod.name == "db" && pod.troubles.join("").contains("the table is full")), "{pods:?}");
    let metrics = world.node.metrics();
    assert!(metrics.contains("\nsidestep_capture_troubles 1\n"), "{metrics}");
    world.forget("huge");
    world.node.wait(|node| node.check().is_well());
    assert!(is_refused(&world.stranger, &world.db));
}

#[test]
fn a_namespace_that_ends_is_forgotten() {
    let mut world = World::new();
    world.policy("all", "default: {ingress: deny}", "db");
    let enforced = |node: &crate::agent::Node| {
        let tables = node.captures().tables.into_iter().chain(node.status().unwrap().tables);
        tables.into_iter().find(|fill| fill.table == "policed_pods").map(|fill| fill.used)
    };
    world.node.wait(|node| enforced(node) == Some(3));
    let World { stranger, mut node, web: _web, db: _db, _servers } = world;
    drop(stranger);
    node.wait(|node| enforced(node) == Some(2));
}
