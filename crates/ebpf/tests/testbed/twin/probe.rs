//! What a program sees of an address. Nothing here knows which of the two worlds it is in.

use super::world::{Port, Service, World};
use super::{NODE, Seen};
use crate::sockets::{PATIENCE, at, mapped, patient};
use sidestep_testkit::Namespace;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Result};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

pub struct Client<'a> {
    pub name: &'static str,
    pub namespace: &'a Namespace,
    pub is_node: bool,
}

/// Everything that was seen of one address.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Who has answered, in its own words.
    pub backends: BTreeSet<String>,
    /// What the program takes its peer to be.
    pub peers: BTreeSet<SocketAddr>,
    pub refused: bool,
    pub others: BTreeSet<String>,
}

/// Of three backends each is met, but for one time in 10^13; for two of them fewer do.
const TRIES: usize = 80;

impl Client<'_> {
    /// All addresses of all Services, and what is seen of each.
    pub fn look(&self, world: &World) -> Seen {
        let ports = world.services.iter().flat_map(|service| service.ports.iter().map(move |port| (service, port)));
        let places: Vec<_> = ports
            .flat_map(|(service, port)| self.places(service, port).into_iter().map(move |to| (service, port, to)))
            .collect();
        self.namespace.run(|| {
            let of = |(service, port, to): &(&Service, &Port, SocketAddr)| {
                // Without endpoints it is the same every time, and takes time with packet rules.
                let v6 = to.ip().to_canonical().is_ipv6();
                let tries = [1, 1, 45, TRIES][service.endpoints_of(v6).len().min(3)];
                ((self.name, format!("{} {to}", port.protocol())), answers(port.udp, *to, tries))
            };
            places.iter().map(of).collect()
        })
    }

    /// Where this client may dial the port; IPv4 also by its mapped name.
    fn places(&self, service: &Service, port: &Port) -> Vec<SocketAddr> {
        let mut places: Vec<_> = service.addresses().map(|ip| SocketAddr::new(ip, port.number)).collect();
        let has_family = |ip: &IpAddr| service.cluster.iter().any(|own| own.is_ipv4() == ip.is_ipv4());
        let loopback = self.is_node.then_some("127.0.0.1");
        let node = NODE.into_iter().chain(loopback).map(|ip| at(ip, 0).ip()).filter(has_family);
        places.extend(
            port.node_port.into_iter().flat_map(|number| node.clone().map(move |ip| SocketAddr::new(ip, number))),
        );
        let again: Vec<_> = places.iter().filter(|to| to.is_ipv4()).map(|to| mapped(*to)).collect();
        places.extend(again);
        places
    }
}

fn answers(udp: bool, to: SocketAddr, tries: usize) -> Answers {
    let mut answers = Answers::default();
    for i in 0..tries {
        // Datagrams by turns with connect() and without; a refusal is told to connected sockets only.
        let connected = i % 2 == 0;
        match if udp { datagram(to, connected) } else { stream(to) } {
            Ok((who, peer)) => {
                answers.backends.insert(who);
                answers.peers.insert(peer);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => answers.refused = true,
            Err(error) => {
                answers.others.insert(error.to_string());
            }
        }
    }
    answers
}

fn stream(to: SocketAddr) -> Result<(String, SocketAddr)> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (peer, mut said) = (stream.peer_addr()?, String::new());
    stream.read_to_string(&mut said)?;
    Ok((said, peer))
}

fn datagram(to: SocketAddr, connected: bool) -> Result<(String, SocketAddr)> {
    let socket = patient(UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?);
    if connected {
        socket.connect(to)?;
        // A packet rule that rejects says EPERM here, and what it means at the next call.
        let _ = socket.send(b"?");
    } else {
        socket.send_to(b"?", to)?;
    }
    let mut said = [0; 64];
    let (length, from) = socket.recv_from(&mut said)?;
    assert!(!connected || socket.peer_addr()? == from);
    Ok((String::from_utf8_lossy(&said[..length]).into(), from))
}
