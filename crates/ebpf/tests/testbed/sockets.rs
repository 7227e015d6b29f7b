//! Helpers for clients and servers in tests.

use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketType, recvfrom};
use sidestep_testkit::Pod;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limit for what must come; reached only if a test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// `::ffff:a.b.c.d`, as a socket of the other family names an IPv4 address.
pub fn mapped(to: SocketAddr) -> SocketAddr {
    match to.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), to.port()),
        IpAddr::V6(_) => to,
    }
}

/// The server that answers, and the peer that the program sees.
pub fn dial(to: SocketAddr) -> io::Result<(IpAddr, SocketAddr)> {
    greeted(TcpStream::connect_timeout(&to, PATIENCE)?)
}

/// What a connected stream reads from a [`crate::node::Backend`], and its peer.
pub fn greeted(mut stream: TcpStream) -> io::Result<(IpAddr, SocketAddr)> {
    let peer = stream.peer_addr()?;
    let mut said = String::new();
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_to_string(&mut said)?;
    Ok((said.trim().parse().unwrap(), peer))
}

/// A new socket.
pub fn fresh(kind: SocketType, v6: bool) -> OwnedFd {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    rustix::net::socket(family, kind, None).unwrap()
}

/// What getpeername() returns.
pub fn peer(socket: &impl AsFd) -> SocketAddr {
    rustix::net::getpeername(socket).unwrap().expect("a name").try_into().unwrap()
}

/// An IPv4 UDP socket with a receive timeout.
pub fn socket() -> UdpSocket {
    patient(UdpSocket::bind("0.0.0.0:0").unwrap())
}

/// An IPv6 UDP socket with a receive timeout, which also accepts mapped addresses.
pub fn socket6() -> UdpSocket {
    patient(UdpSocket::bind("[::]:0").unwrap())
}

pub fn patient(socket: UdpSocket) -> UdpSocket {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The server that answers, and the source address of the answer.
pub fn ask(socket: &UdpSocket, to: SocketAddr) -> (IpAddr, SocketAddr) {
    socket.send_to(b"?", to).unwrap();
    hear(socket)
}

pub fn hear(socket: &UdpSocket) -> (IpAddr, SocketAddr) {
    let mut text = [0; 64];
    let (length, from) = socket.recv_from(&mut text).unwrap();
    (answer(&text[..length]), from)
}

/// Parses what an [`Echo`] says.
pub fn answer(text: &[u8]) -> IpAddr {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

/// Waits until the condition holds.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5)); // between two looks
    }
}

/// Answers each datagram, of either family, with the pod's address of that family.
pub struct Echo {
    socket: Arc<UdpSocket>,
    server: Option<JoinHandle<()>>,
}

pub fn echo(pod: &Pod, port: u16) -> Echo {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    let socket = Arc::new(pod.namespace.run(|| UdpSocket::bind(any).unwrap()));
    let (serving, v4, v6) = (socket.clone(), pod.v4, pod.v6);
    let server = std::thread::spawn(move || {
        // shutdown() makes recvfrom return an empty datagram without an address, which the standard library cannot represent.
        while let Ok((_, 1.., Some(from))) = recvfrom(&serving, &mut [0; 16], RecvFlags::empty()) {
            let from = SocketAddr::try_from(from).unwrap();
            let mine = if from.ip().to_canonical().is_ipv4() { v4 } else { v6 };
            let _ = serving.send_to(mine.to_string().as_bytes(), from);
        }
    });
    Echo { socket, server: Some(server) }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // Shutting down an unconnected socket wakes its reader, although the call itself fails with ENOTCONN.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        self.server.take().unwrap().join().unwrap();
    }
}
