//! Connections between pods: what the proxy sees of them, and what the programs do.

use super::world::{INBOUND, OUTBOUND, World, dial_as, met, of, program, proxy, rules};
use crate::sockets::{at, mapped, until};
use sidestep_testkit::greeter::{PROXY, ROOT, as_owner};

#[test]
fn what_a_program_sends_goes_to_the_proxy_which_knows_what_was_dialled() {
    let mut world = World::new();
    let (client, server) = (world.pod(), world.pod());
    let (_proxy, _server) = (proxy(&client), program(&server, 8080));
    world.capture(&client, &rules());
    for (ip, own) in [(server.v4, client.v4), (server.v6, client.v6)] {
        let met = dial_as(&client, ROOT, of(ip, 8080)).unwrap();
        assert_eq!(met.peer, of(ip, 8080), "the program's own view");
        assert_eq!(met.seen.listener, OUTBOUND);
        assert_eq!(met.seen.original, Some(of(ip, 8080)));
        assert_eq!((met.seen.peer, met.local), (met.local, of(own, met.local.port())), "the source is the pod's");
    }
    let met = dial_as(&client, ROOT, mapped(of(server.v4, 8080))).unwrap();
    assert_eq!(met.peer, mapped(of(server.v4, 8080)));
    assert_eq!((met.seen.listener, met.seen.original), (OUTBOUND, Some(of(server.v4, 8080))));
}

/// The kernel inserts the address's local route after duplicate address detection, a second after the address.
#[test]
fn a_pod_captured_before_its_address_has_a_local_route_reaches_its_outbound_listener() {
    let mut world = World::new();
    let (client, server) = (world.pod(), world.pod());
    let (_proxy, _server) = (proxy(&client), program(&server, 8080));
    client.namespace.ip("-6 addr flush dev eth0 scope global");
    client.namespace.ip(&format!("-6 addr add {}/64 dev eth0", client.v6));
    client.namespace.ip("-6 route replace default via fd00:244::1");
    world.capture(&client, &rules());
    let has_local_route = || client.namespace.run(|| std::net::TcpListener::bind(of(client.v6, 0))).is_ok();
    assert!(!has_local_route(), "captured too late for what is tested here");
    until("the address is usable", has_local_route);
    let met = dial_as(&client, ROOT, of(server.v6, 8080)).unwrap();
    assert_eq!((met.seen.listener, met.seen.original), (OUTBOUND, Some(of(server.v6, 8080))));
}

#[test]
fn what_the_proxy_sends_goes_where_it_wants() {
    let mut world = World::new();
    let (client, server) = (world.pod(), world.pod());
    let (_proxy, _server) = (proxy(&client), program(&server, 8080));
    world.capture(&client, &rules());
    for ip in [server.v4, server.v6] {
        let met = dial_as(&client, PROXY, of(ip, 8080)).unwrap();
        assert_eq!((met.seen.listener, met.seen.original, met.peer), (8080, None, of(ip, 8080)));
    }
}

#[test]
fn what_comes_in_goes_to_the_proxy_whatever_the_port_is() {
    let mut world = World::new();
    let (client, server) = (world.pod(), world.pod());
    let (_proxy, _server) = (proxy(&server), program(&server, 8080));
    world.capture(&server, &rules());
    for (ip, port) in [(server.v4, 8080), (server.v6, 8080), (server.v4, 9999), (server.v6, INBOUND)] {
        let met = dial_as(&client, ROOT, of(ip, port)).unwrap();
        assert_eq!((met.seen.listener, met.seen.local), (INBOUND, of(ip, port)));
        assert_eq!((met.seen.original, met.seen.peer), (Some(of(ip, port)), met.local));
    }
    let direct = dial_as(&client, ROOT, of(server.v4, 15021)).unwrap_err();
    assert_eq!(direct.kind(), std::io::ErrorKind::ConnectionRefused, "an excluded port at which nobody listens");
}

#[test]
fn a_service_is_dialled_by_the_proxy_and_balanced_for_it() {
    let mut world = World::new();
    let (client, server) = (world.pod(), world.pod());
    let (_proxy, _server) = (proxy(&client), program(&server, 8080));
    let vip = at("10.96.0.10", 80);
    world.node.service("web", sidestep_mesh::address::Protocol::Tcp, "10.96.0.10", 80, [(server.v4, 8080)]);
    world.capture(&client, &rules());
    let met = dial_as(&client, ROOT, vip).unwrap();
    assert_eq!((met.seen.listener, met.seen.original, met.peer), (OUTBOUND, Some(vip), vip));
    assert_eq!(world.node.counters("web").picks, 0);
    let met = dial_as(&client, PROXY, vip).unwrap();
    assert_eq!((met.seen.listener, met.seen.local, met.peer), (8080, of(server.v4, 8080), vip));
    assert_eq!(world.node.counters("web").picks, 1);
}

/// As the proxy does when it passes connections on to its own pod's programs.
#[test]
fn from_its_own_loopback_address_the_proxy_reaches_its_pods_programs() {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let mut world = World::new();
    let pod = world.pod();
    let (_proxy, _program) = (proxy(&pod), program(&pod, 8080));
    world.capture(&pod, &rules());
    let from_6 = || {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &at("127.0.0.6", 0)).unwrap();
        connect(&socket, &of(pod.v4, 8080)).unwrap();
        met(std::net::TcpStream::from(socket)).unwrap()
    };
    let met_from_6 = pod.namespace.run(|| as_owner(PROXY, from_6));
    assert_eq!((met_from_6.seen.listener, met_from_6.seen.peer.ip()), (8080, at("127.0.0.6", 0).ip()));
    let itself = dial_as(&pod, PROXY, of(pod.v4, 8080)).unwrap();
    assert_eq!((itself.seen.listener, itself.seen.original), (INBOUND, Some(of(pod.v4, 8080))));
}
