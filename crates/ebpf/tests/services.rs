//! Programs in namespaces that dial Services: what they reach, what they hear of their peer, what they are told.

mod node;

use node::{Node, backend};
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

const VIP: &str = "10.96.0.10";
const VIP6: &str = "fd00:96::10";

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Who answers, and whom the program believes to be talking to.
fn dial(to: SocketAddr) -> std::io::Result<(IpAddr, SocketAddr)> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    let peer = stream.peer_addr()?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok((said.trim().parse().unwrap(), peer))
}

#[test]
fn tcp_reaches_every_backend_and_the_peer_is_the_service() {
    for (vip, v6) in [(VIP, false), (VIP6, true)] {
        let mut node = Node::new();
        let (client, backends) = (node.lab.pod(), [node.lab.pod(), node.lab.pod()]);
        let wanted: BTreeSet<IpAddr> = backends.iter().map(|pod| if v6 { pod.v6 } else { pod.v4 }).collect();
        let _servers: Vec<_> = backends.iter().map(|pod| backend(pod, 8080)).collect();
        node.service("web", Tcp, vip, 80, wanted.iter().map(|ip| (*ip, 8080)));
        let reached: BTreeSet<IpAddr> = client.namespace.run(|| {
            (0..40).map(|_| dial(at(vip, 80)).unwrap()).map(|(who, peer)| {
                assert_eq!(peer, at(vip, 80));
                who
            }).collect()
        });
        assert_eq!(reached, wanted);
    }
}

#[test]
fn a_mapped_address_on_a_v6_socket_is_the_v4_service() {
    let mut node = Node::new();
    let (client, server) = (node.lab.pod(), node.lab.pod());
    let _listener = backend(&server, 8080);
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    let (who, peer) = client.namespace.run(|| dial(at(&format!("::ffff:{VIP}"), 80)).unwrap());
    assert_eq!((who, peer), (server.v4, at(&format!("::ffff:{VIP}"), 80)));
}

#[test]
fn without_endpoints_a_connection_is_refused_at_once() {
    let mut node = Node::new();
    let client = node.lab.pod();
    node.service("web", Tcp, VIP, 80, []);
    node.service("dns", Udp, VIP, 53, []);
    client.namespace.run(|| {
        assert_eq!(dial(at(VIP, 80)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        assert_eq!(socket.send_to(b"?", at(VIP, 53)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(socket.connect(at(VIP, 53)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
    assert_eq!(node.reason("refused"), 3);
}

#[test]
fn what_is_no_service_is_left_alone() {
    let mut node = Node::new();
    let (client, server) = (node.lab.pod(), node.lab.pod());
    let _listener = backend(&server, 8080);
    node.service("web", Tcp, VIP, 80, [(server.v4, 8080)]);
    let direct = SocketAddr::new(server.v4, 8080);
    assert_eq!(client.namespace.run(|| dial(direct).unwrap()), (server.v4, direct));
    assert_eq!(node.reason("translated"), 0);
}
