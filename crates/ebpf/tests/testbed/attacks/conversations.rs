//! Answers to datagrams that a pod with a closed ingress still receives. A pod cannot evict another pod's answers by a flood, and a
//! pod that loses a right does not keep it by continuing.

use super::caller::{SOON, as_nobody};
use super::raw::{family, ping};
use crate::policy::probe::{Family, Seen, seen};
use crate::policy::world::{PORTS, World};
use crate::sockets::{patient, socket, until};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Protocol, RecvFlags, SendFlags, SocketType, recvfrom, sendto};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

/// More than the tables of one pod, or of all pods together, can hold.
const FLOOD: usize = 100_000;
const PORT: u16 = 9000;

#[test]
fn a_flood_of_one_pod_leaves_the_others_their_answers() {
    let mut world = World::new();
    let [attacker, victim, server] = world.apps(["attacker", "victim", "server"]);
    for app in ["attacker", "victim"] {
        world.policy(app, &format!("select: {{matchLabels: {{app: {app}}}}}, default: {{ingress: deny}}"));
    }
    world.settle();
    for v6 in [false, true] {
        let any = if v6 { "[::]:0" } else { "0.0.0.0:0" };
        let to = SocketAddr::new(world.address(&server, v6), PORT);
        let serving = world.pods[&server].namespace.run(|| patient(UdpSocket::bind(to).unwrap()));
        let asking = as_nobody(&world.pods[&victim], || patient(UdpSocket::bind(any).unwrap()));
        asking.send_to(b"?", to).unwrap();
        let (_, client) = serving.recv_from(&mut [0; 16]).unwrap();
        as_nobody(&world.pods[&attacker], || {
            let sockets: Vec<UdpSocket> = (0..8).map(|_| UdpSocket::bind(any).unwrap()).collect();
            for number in 0..FLOOD {
                // Each to another port; most have no listener.
                let port = (1 + number / sockets.len()) as u16;
                let _ = sockets[number % sockets.len()].send_to(b"!", SocketAddr::new(to.ip(), port));
            }
        });
        // The answer comes late.
        asking.set_read_timeout(Some(SOON)).unwrap();
        serving.send_to(b"!", client).unwrap();
        let (_, from) = asking.recv_from(&mut [0; 16]).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert_eq!(from, to);
    }
    assert_eq!(world.node.reason("conversation-not-kept"), 0);
}

/// `policies`: those of `app`, before and after. The same socket of `web` asks `db` under both.
fn asks_under_both(app: &str, policies: [&str; 2]) -> [Seen; 2] {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let to = world.place(&db, Family::V4, PORTS[0]);
    let asking = world.pods[&web].namespace.run(socket);
    asking.set_read_timeout(Some(SOON)).unwrap();
    policies.map(|policy| {
        world.policy("changing", &format!("select: {{matchLabels: {{app: {app}}}}}, {policy}"));
        world.settle();
        let asked = asking.send_to(b"?", to).and_then(|_| asking.recv_from(&mut [0; 64]));
        seen(asked.map(drop))
    })
}

#[test]
fn who_may_no_longer_ask_is_not_answered_for_having_asked() {
    let closed = "default: {ingress: deny, egress: deny}";
    let asked = asks_under_both("db", [&format!("{closed}, ingress: [{{action: allow}}]"), closed]);
    assert_eq!(asked[0], Seen::Reached);
    assert_ne!(asked[1], Seen::Reached, "the server lets in whom it no longer allows");
    let asked = asks_under_both("web", [&format!("{closed}, egress: [{{action: allow}}]"), closed]);
    assert_eq!(asked, [Seen::Reached, Seen::Refused], "the client calls whom it no longer may");
}

const SCTP: u32 = 132;

fn raw_sctp(v6: bool) -> OwnedFd {
    let protocol = Protocol::from_raw(SCTP.try_into().unwrap());
    let socket = rustix::net::socket(family(v6), SocketType::RAW, Some(protocol)).unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(SOON)).unwrap();
    socket
}

#[test]
fn a_ping_lets_no_other_protocol_of_the_pinged_host_in() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.pods[&db].namespace.run(|| {
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647").unwrap();
    });
    for is_closed in [false, true] {
        if is_closed {
            world.policy("db", "select: {matchLabels: {app: db}}, default: {ingress: deny}");
            world.settle();
        }
        for v6 in [false, true] {
            let [from, to] = [&web, &db].map(|name| world.address(name, v6));
            until("the ping is answered", || as_nobody(&world.pods[&db], || ping(from)) == Ok(true));
            let hearing = world.pods[&db].namespace.run(|| raw_sctp(v6));
            let sent = world.pods[&web]
                .namespace
                .run(|| sendto(raw_sctp(v6), &[0; 12], SendFlags::empty(), &SocketAddr::new(to, 0)));
            assert_eq!(sent, Ok(12));
            let heard = recvfrom(&hearing, &mut [0; 64], RecvFlags::empty()).is_ok();
            assert_eq!(heard, !is_closed, "from {from}");
        }
    }
}
