//! What a program observes when it calls a pod.

use super::world::World;
use crate::sockets::{PATIENCE, mapped, patient};
use sidestep_mesh::address::Protocol::{self, Tcp, Udp};
use sidestep_mesh::object::Name;
use std::io::{Error, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Reached,
    /// ECONNREFUSED
    Refused,
    /// EHOSTUNREACH, ENETUNREACH
    Unreachable,
    /// No answer.
    Silence,
}

/// On one machine an answer comes within this time, if at all.
const SILENCE: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
    /// An IPv6 socket dials a mapped IPv4 address.
    Mapped,
}

impl Family {
    pub const ALL: [Family; 3] = [Family::V4, Family::V6, Family::Mapped];
}

impl World {
    pub fn place(&self, server: &Name, family: Family, port: u16) -> SocketAddr {
        let at = SocketAddr::new(self.address(server, family == Family::V6), port);
        if family == Family::Mapped { mapped(at) } else { at }
    }

    pub fn call(&self, client: &Name, to: SocketAddr, protocol: Protocol) -> Seen {
        self.pods[client].namespace.run(|| call(to, protocol))
    }
}

pub fn call(to: SocketAddr, protocol: Protocol) -> Seen {
    seen(match protocol {
        Tcp => stream(to),
        Udp => datagram(to),
    })
}

pub fn seen(outcome: Result<(), Error>) -> Seen {
    match outcome.map_err(|error| (error.kind(), error)) {
        Ok(()) => Seen::Reached,
        Err((ErrorKind::ConnectionRefused, _)) => Seen::Refused,
        Err((ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable, _)) => Seen::Unreachable,
        Err((ErrorKind::TimedOut | ErrorKind::WouldBlock, _)) => Seen::Silence,
        Err((_, error)) => panic!("{error}"),
    }
}

fn stream(to: SocketAddr) -> Result<(), Error> {
    let mut stream = TcpStream::connect_timeout(&to, SILENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_to_string(&mut String::new()).map(drop)
}

/// Connected, since only connected sockets are told of refusals.
fn datagram(to: SocketAddr) -> Result<(), Error> {
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.set_read_timeout(Some(SILENCE))?;
    socket.connect(to)?;
    socket.send(b"?")?;
    socket.recv(&mut [0; 64]).map(drop)
}

/// Sends with an address, from an unconnected socket.
pub fn unconnected(to: SocketAddr) -> Result<(), Error> {
    let socket = patient(UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?);
    socket.set_read_timeout(Some(SILENCE))?;
    socket.send_to(b"?", to)?;
    socket.recv_from(&mut [0; 64]).map(drop)
}
