//! What clients and servers of the tests have in common.

use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketType, recvfrom};
use sidestep_testkit::Pod;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For what must come. Nothing waits that long unless it fails.
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

/// Who answers, and whom the program believes to be talking to.
pub fn dial(to: SocketAddr) -> io::Result<(IpAddr, SocketAddr)> {
    greeted(TcpStream::connect_timeout(&to, PATIENCE)?)
}

/// What a connected stream hears of a [`crate::node::Backend`], and its peer.
pub fn greeted(mut stream: TcpStream) -> io::Result<(IpAddr, SocketAddr)> {
    let peer = stream.peer_addr()?;
    let mut said = String::new();
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_to_string(&mut said)?;
    Ok((said.trim().parse().unwrap(), peer))
}

/// A socket that has done nothing yet.
pub fn fresh(kind: SocketType, v6: bool) -> OwnedFd {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    rustix::net::socket(family, kind, None).unwrap()
}

/// Whom getpeername() names.
pub fn peer(socket: &impl AsFd) -> SocketAddr {
    rustix::net::getpeername(socket).unwrap().expect("a name").try_into().unwrap()
}

/// An IPv4 socket for datagrams that does not wait for ever.
pub fn socket() -> UdpSocket {
    patient(UdpSocket::bind("0.0.0.0:0").unwrap())
}

/// The same of IPv6, which takes mapped addresses too.
pub fn socket6() -> UdpSocket {
    patient(UdpSocket::bind("[::]:0").unwrap())
}

pub fn patient(socket: UdpSocket) -> UdpSocket {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Who answers, and as whom.
pub fn ask(socket: &UdpSocket, to: SocketAddr) -> (IpAddr, SocketAddr) {
    socket.send_to(b"?", to).unwrap();
    hear(socket)
}

pub fn hear(socket: &UdpSocket) -> (IpAddr, SocketAddr) {
    let mut text = [0; 64];
    let (length, from) = socket.recv_from(&mut text).unwrap();
    (answer(&text[..length]), from)
}

/// What an [`Echo`] says.
pub fn answer(text: &[u8]) -> IpAddr {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

/// Waits until it is so.
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
        // A shutdown looks like a datagram that is empty, and nobody's: the standard library would look for an address.
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
        // An unconnected socket wakes its reader up, and says that it is not connected.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        self.server.take().unwrap().join().unwrap();
    }
}
