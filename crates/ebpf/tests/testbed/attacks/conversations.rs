//! Datagrams that are answered through a closed door: what one pod sends has nobody else's answers forgotten.

use super::caller::{SOON, as_nobody};
use crate::policy::world::World;
use crate::sockets::patient;
use std::net::{SocketAddr, UdpSocket};

/// More than one pod, or all of them together, had room for.
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
                // Each to another port: at most of them nobody listens.
                let port = (1 + number / sockets.len()) as u16;
                let _ = sockets[number % sockets.len()].send_to(b"!", SocketAddr::new(to.ip(), port));
            }
        });
        // The answer is late.
        asking.set_read_timeout(Some(SOON)).unwrap();
        serving.send_to(b"!", client).unwrap();
        let (_, from) = asking.recv_from(&mut [0; 16]).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert_eq!(from, to);
    }
    assert_eq!(world.node.reason("conversation-not-kept"), 0);
}
