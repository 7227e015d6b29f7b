//! TCP.

use super::flood::{PORT, SYN, packet, raw};
use super::world::{BALANCER, CLIENT, CLUSTER, Call, INSIDE, NODE, NODE_PORT, SHORT, World, call, frontends, witness};
use crate::node::plain_service;
use crate::sockets::{PATIENCE, at};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SendFlags, SocketType, bind, connect, sendto, socket};
use sidestep_mesh::address::Protocol::Tcp;
use sidestep_mesh::object::Object;
use sidestep_mesh::state::Change;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

fn dropped(to: SocketAddr) {
    assert_eq!(TcpStream::connect_timeout(&to, SHORT).unwrap_err().kind(), ErrorKind::TimedOut, "{to}");
}

#[test]
fn clients_outside_reach_a_service_at_all_of_its_addresses_and_come_masqueraded() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "elsewhere")], |_| {});
    for (family, server) in [pod.v4, pod.v6].into_iter().enumerate() {
        for to in frontends(family).into_iter().chain([at(CLUSTER[family], 80)]) {
            world.outside.run(|| {
                let mut call = call(to);
                assert_eq!((call.seen, call.server), (at(INSIDE[family], 0).ip(), server), "{to}");
                assert_eq!(call.stream.get_ref().peer_addr().unwrap(), to);
                call.exchange(1 << 20);
            });
        }
    }
    assert_eq!(world.node.counters("web").picks, 4); // of IPv4
    assert_eq!(world.node.reason("packet-translated"), 8);
}

/// Any tenant may name any address as an external one.
#[test]
fn packets_to_a_cluster_ip_reach_its_service_whoever_names_it_as_an_external_address() {
    let mut world = World::new();
    let (its, others) = (world.pod(), world.pod());
    let _witnesses = [witness(&its), witness(&others)];
    world.service(Tcp, &[(&its, "node")], |_| {});
    let mut other = plain_service("other", Tcp, "10.96.0.2", 80);
    other.cluster_ips.push("fd00:96::2".parse().unwrap());
    other.external_ips = CLUSTER.map(|ip| ip.parse().unwrap()).into();
    world.node.change(Change::Put(Object::Service(other)));
    world.node.endpoints("other", Tcp, [(others.v4, 8080), (others.v6, 8080)]);
    for (family, server) in [its.v4, its.v6].into_iter().enumerate() {
        assert_eq!(world.outside.run(|| call(at(CLUSTER[family], 80)).server), server);
    }
}

#[test]
fn with_policy_local_only_endpoints_of_the_node_serve_and_see_the_client() {
    let mut world = World::new();
    let (here, there) = (world.pod(), world.pod());
    let _witnesses = [witness(&here), witness(&there)];
    world.service(Tcp, &[(&here, "node"), (&there, "elsewhere")], |service| service.external_local = true);
    for (family, server) in [here.v4, here.v6].into_iter().enumerate() {
        for to in frontends(family) {
            for _ in 0..5 {
                let found = world.outside.run(|| call(to));
                assert_eq!((found.seen, found.server), (at(CLIENT[family], 0).ip(), server), "{to}");
            }
        }
    }
    world.endpoints(Tcp, &[(&there, "elsewhere")]);
    let before = world.node.reason("packet-without-endpoint");
    world.outside.run(|| dropped(at(NODE[0], NODE_PORT)));
    assert!(world.node.reason("packet-without-endpoint") > before);
}

#[test]
fn only_sources_in_the_ranges_reach_a_load_balancers_address() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
    // Other addresses are not restricted, nor is a family without a range.
    world
        .service(Tcp, &[(&pod, "node")], |service| service.source_ranges = ranges(&["203.0.113.0/24", "192.0.2.3/32"]));
    let before = world.node.reason("packet-not-in-ranges");
    world.outside.run(|| {
        dropped(at(BALANCER[0], 80));
        call(at(BALANCER[1], 80));
        call(at(NODE[0], NODE_PORT)).exchange(1000);
    });
    assert!(world.node.reason("packet-not-in-ranges") > before);
    world.service(Tcp, &[(&pod, "node")], |service| {
        service.source_ranges = ranges(&["192.0.2.0/30", "2001:db8:9::/48"])
    });
    world.outside.run(|| {
        call(at(BALANCER[0], 80)).exchange(1000);
        dropped(at(BALANCER[1], 80));
    });
    world.service(Tcp, &[(&pod, "node")], |_| {});
    world.outside.run(|| call(at(BALANCER[1], 80)).exchange(1000));
}

/// As with kube-proxy: whoever leaves the ranges opens no new connection.
#[test]
fn a_connection_outlives_a_change_of_the_ranges() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |_| {});
    let mut earlier = world.outside.run(|| call(at(BALANCER[0], 80)));
    let others = vec!["203.0.113.0/24".parse().unwrap()];
    world.service(Tcp, &[(&pod, "node")], |service| service.source_ranges = others);
    let before = world.node.reason("packet-not-in-ranges");
    earlier.exchange(100_000);
    assert_eq!(world.node.reason("packet-not-in-ranges"), before);
    world.outside.run(|| dropped(at(BALANCER[0], 80)));
    assert!(world.node.reason("packet-not-in-ranges") > before);
    earlier.exchange(1000);
}

#[test]
fn an_address_keeps_its_backend() {
    let mut world = World::new();
    let pods = [world.pod(), world.pod(), world.pod()];
    let _witnesses: Vec<_> = pods.iter().map(witness).collect();
    let all: Vec<_> = pods.iter().map(|pod| (pod, "node")).collect();
    world.service(Tcp, &all, |service| service.affinity_seconds = Some(600));
    let servers = |world: &World| {
        let each = frontends(0).into_iter().flat_map(|to| [to; 8]);
        let mut found: Vec<_> = world.outside.run(|| each.map(|to| call(to).server).collect());
        found.dedup();
        found
    };
    let kept = servers(&world);
    assert_eq!(kept.len(), 1, "{kept:?}");
    let others: Vec<_> = all.into_iter().filter(|(pod, _)| pod.v4 != kept[0]).collect();
    world.endpoints(Tcp, &others);
    let next = servers(&world);
    assert!(next.len() == 1 && next != kept, "{next:?}");
}

/// Clients use a port for several destinations at a time.
#[test]
fn connections_from_one_port_to_two_frontends_have_the_same_backend() {
    let mut world = World::new();
    let pod = world.pod();
    let _witness = witness(&pod);
    world.service(Tcp, &[(&pod, "node")], |service| service.external_local = true);
    let calls = world.outside.run(|| {
        [at(NODE[0], NODE_PORT), at(BALANCER[0], 80)].map(|to| {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            set_socket_reuseaddr(&socket, true).unwrap();
            bind(&socket, &at(CLIENT[0], 45_001)).unwrap();
            connect(&socket, &to).unwrap();
            Call::on(socket.into())
        })
    });
    for mut call in calls {
        assert_eq!((call.seen, call.server), (at(CLIENT[0], 0).ip(), pod.v4));
        call.exchange(1 << 16);
    }
}

/// The earlier connection's entry in conntrack has not expired yet.
#[test]
fn a_port_that_has_just_been_used_begins_another_connection() {
    let mut world = World::new();
    let pods = [world.pod(), world.pod()];
    let _witnesses = [witness(&pods[0]), witness(&pods[1])];
    let to = at(NODE[0], NODE_PORT);
    for pod in &pods {
        world.service(Tcp, &[(pod, "node")], |_| {});
        let mut found = world.outside.run(|| {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            set_socket_reuseaddr(&socket, true).unwrap();
            bind(&socket, &at(CLIENT[0], 45_000)).unwrap();
            connect(&socket, &to).unwrap();
            Call::on(socket.into())
        });
        assert_eq!(found.server, pod.v4);
        // The server ends first, so that the client's port is free at once.
        found.stream.get_ref().shutdown(Shutdown::Write).unwrap();
        assert_eq!(found.stream.read(&mut [0]).unwrap(), 0);
        rustix::net::sockopt::set_socket_linger(found.stream.get_ref(), Some(std::time::Duration::ZERO)).unwrap();
    }
}

/// A stranger who knows the server's address and port has it the way from the server to a NodePort.
#[test]
fn a_forged_syn_does_not_end_a_masqueraded_connection() {
    let mut world = World::new();
    let (caller, backend) = (world.pod(), world.pod());
    let _witness = witness(&backend);
    world.service(Tcp, &[(&backend, "node")], |_| {});
    world.masquerade(&format!("tcp dport {PORT}"), NODE_PORT);
    let (server, frontend) = (at(CLIENT[0], PORT), at(NODE[0], NODE_PORT));
    let listener = world.outside.run(|| TcpListener::bind(server).unwrap());
    let mut client = caller.namespace.run(|| TcpStream::connect(server).unwrap());
    let (mut accepted, from) = listener.accept().unwrap();
    assert_eq!(from, frontend);
    world.outside.run(|| {
        let [from, to] = [CLIENT[0], NODE[0]].map(|ip| ip.parse().unwrap());
        sendto(raw(), &packet(from, to, 6, SYN), SendFlags::empty(), &at(NODE[0], 0)).unwrap();
    });
    for stream in [&accepted, &client] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    accepted.write_all(b"!").unwrap();
    client.read_exact(&mut [0]).unwrap();
    client.write_all(b"?").unwrap();
    accepted.read_exact(&mut [0]).unwrap();
    assert_eq!(world.node.reason("packet-translated"), 0);
}
