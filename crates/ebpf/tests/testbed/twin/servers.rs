//! Servers that tell each client which address and port it has reached.

use super::world::TARGETS;
use rustix::net::{Shutdown, shutdown};
use sidestep_testkit::Pod;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

pub struct Server {
    socket: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// One for each target port and protocol.
pub fn all(pod: &Pod) -> Vec<Server> {
    TARGETS.into_iter().flat_map(|port| [streams(pod, port), datagrams(pod, port)]).collect()
}

fn serve(socket: OwnedFd, work: impl FnOnce() + Send + 'static) -> Server {
    Server { socket, thread: Some(std::thread::spawn(work)) }
}

fn any(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)
}

fn streams(pod: &Pod, port: u16) -> Server {
    let listener = pod.namespace.run(|| TcpListener::bind(any(port)).unwrap());
    serve(listener.try_clone().unwrap().into(), move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let own = stream.local_addr().unwrap();
            // A client that has gone away already is none to answer.
            let _ = write!(stream, "{}", SocketAddr::new(own.ip().to_canonical(), own.port()));
        }
    })
}

fn datagrams(pod: &Pod, port: u16) -> Server {
    let socket = pod.namespace.run(|| UdpSocket::bind(any(port)).unwrap());
    let own = |ip: IpAddr| SocketAddr::new(ip, port).to_string();
    let (v4, v6) = (own(pod.v4), own(pod.v6));
    serve(socket.try_clone().unwrap().into(), move || {
        // An empty datagram is what a shutdown looks like.
        while let Ok((1.., from)) = socket.recv_from(&mut [0; 16]) {
            let said = if from.ip().to_canonical().is_ipv4() { &v4 } else { &v6 };
            let _ = socket.send_to(said.as_bytes(), from);
        }
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.thread.take().unwrap().join().unwrap();
    }
}
