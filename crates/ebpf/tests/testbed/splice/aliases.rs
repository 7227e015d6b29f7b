//! Connections with address translation on the way: their ends do not mirror each other.

use super::stream::exchange;
use super::world::{End, PORT, World, listen};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use sidestep_ebpf::layout::{MapData, flow_of};
use sidestep_mesh::address::Endpoint;
use sidestep_testkit::Pod;
use sidestep_testkit::program::command;
use std::net::SocketAddr;

/// The address that clients dial; the server listens elsewhere.
const DIALLED: &str = "10.9.9.9:7050";

/// A pod in which that address is translated to its own port.
fn translating(world: &mut World) -> Pod {
    let pod = world.testbed.pod();
    pod.namespace.ip("route add 10.9.9.9 dev eth0");
    let rules = format!(
        "add table ip nat\n\
         add chain ip nat output {{ type nat hook output priority -100; }}\n\
         add rule ip nat output ip daddr 10.9.9.9 tcp dport 7050 dnat to {}:{PORT}\n",
        pod.v4
    );
    pod.namespace.finish(command("nft").arg(rules));
    pod
}

fn connect(pod: &Pod, from: SocketAddr) -> (End, End) {
    pod.namespace.run(|| {
        let listener = listen(SocketAddr::new(pod.v4, PORT));
        let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        net::bind(&socket, &from).unwrap();
        (End::connect_by(socket, DIALLED.parse().unwrap()).unwrap(), End::accept(&listener))
    })
}

#[test]
fn without_an_alias_they_are_left_alone() {
    let mut world = World::new();
    let pod = translating(&mut world);
    let (client, server) = connect(&pod, SocketAddr::new(pod.v4, 40_000));
    exchange(&client, &server, [100_000, 100_000], 5000, 1);
    assert_eq!((world.reason("peer-elsewhere"), world.reason("spliced"), world.redirected()), (1, 0, 0));
}

#[test]
fn with_one_they_are_spliced() {
    let mut world = World::new();
    let pod = translating(&mut world);
    let from = SocketAddr::new(pod.v4, 40_000);
    let end = |address: SocketAddr| Endpoint::new(address.ip(), address.port());
    let seen = |server| flow_of(end(from), end(server), 0);
    let (accepted, dialled) = (seen(SocketAddr::new(pod.v4, PORT)), seen(DIALLED.parse().unwrap()));
    let aliases = MapHandle::from_pinned_path(world.options.pins.join("splice/maps-1/aliases")).unwrap();
    aliases.update(accepted.bytes(), dialled.bytes(), MapFlags::ANY).unwrap();
    let (client, server) = connect(&pod, from);
    exchange(&client, &server, [100_000, 100_000], 5000, 1);
    assert_eq!(world.reason("spliced"), 1);
    assert!(world.redirected() > 0);
}
