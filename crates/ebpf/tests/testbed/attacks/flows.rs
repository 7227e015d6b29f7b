//! Datagrams to Services, whose tables all pods of the node share: a flood by one pod costs no other pod its answers.

use super::caller::as_nobody;
use crate::node::Node;
use crate::sockets::{at, patient};
use sidestep_mesh::address::Protocol::Udp;
use sidestep_testkit::Pod;
use std::net::{SocketAddr, UdpSocket};

/// The tables have room for 65,536 sockets.
const FLOOD: usize = 200_000;
const SOCKETS: usize = 16;
const VIP: &str = "10.96.0.53";

fn bound(pod: &Pod, at: SocketAddr) -> UdpSocket {
    pod.namespace.run(|| patient(UdpSocket::bind(at).unwrap()))
}

#[test]
fn a_flood_of_one_pod_leaves_the_others_their_backends_and_their_names() {
    let mut node = Node::new();
    let [attacker, victim, one, other] = [(); 4].map(|()| node.testbed.pod());
    let servers = [&one, &other].map(|pod| bound(pod, SocketAddr::new(pod.v4, 5353)));
    node.service("dns", Udp, VIP, 53, [(one.v4, 5353), (other.v4, 5353)]);
    let vip = at(VIP, 53);
    let asking: Vec<UdpSocket> = (0..SOCKETS).map(|_| bound(&victim, at("0.0.0.0", 0))).collect();
    for socket in &asking {
        socket.send_to(b"?", vip).unwrap();
    }
    // Sockets that have asked a server, and have no answer yet.
    let questions = || {
        servers.each_ref().map(|server| {
            server.set_nonblocking(true).unwrap();
            let mut clients = Vec::new();
            while let Ok((_, client)) = server.recv_from(&mut [0; 16]) {
                clients.push(client);
            }
            clients.sort();
            clients
        })
    };
    let asked = questions();
    assert_eq!(asked.iter().map(Vec::len).sum::<usize>(), SOCKETS);
    as_nobody(&attacker, || {
        for _ in 0..FLOOD {
            // Datagrams that the servers cannot take are lost.
            let _ = UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"!", vip);
        }
    });
    questions();
    for (server, clients) in servers.iter().zip(&asked) {
        for client in clients {
            server.send_to(b"late", client).unwrap();
        }
    }
    for socket in &asking {
        assert_eq!(socket.recv_from(&mut [0; 16]).unwrap().1, vip);
        socket.send_to(b"?", vip).unwrap();
    }
    assert_eq!(questions(), asked, "each goes on with its backend");
}
