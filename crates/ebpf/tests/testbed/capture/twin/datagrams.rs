//! UDP servers that tell a client how its datagram looks from their end.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sidestep_testkit::greeter::{Owner, Seen, as_owner};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// One socket for each address, so that answers come from that address. Ends when dropped.
pub struct Datagrams {
    stop: Arc<OwnedFd>,
    server: Option<JoinHandle<()>>,
}

impl Datagrams {
    pub fn new(owner: Owner, addresses: &[SocketAddr]) -> Datagrams {
        let bind = |at: &SocketAddr| UdpSocket::bind(at).unwrap_or_else(|error| panic!("{at}: {error}"));
        let sockets: Vec<_> = as_owner(owner, || addresses.iter().map(|at| (*at, bind(at))).collect());
        let stop = Arc::new(eventfd(0, EventfdFlags::empty()).unwrap());
        let stopped = stop.clone();
        let server = std::thread::spawn(move || serve(&sockets, &stopped));
        Datagrams { stop, server: Some(server) }
    }
}

fn serve(sockets: &[(SocketAddr, UdpSocket)], stop: &OwnedFd) {
    loop {
        let mut fds: Vec<_> = sockets.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)).collect();
        fds.push(PollFd::new(stop, PollFlags::IN));
        poll(&mut fds, None).unwrap();
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[sockets.len()] {
            return;
        }
        sockets.iter().zip(ready).filter(|(_, ready)| *ready).for_each(|((at, socket), _)| answer(*at, socket));
    }
}

/// Reading may fail because of an ICMP error for an earlier answer.
fn answer(at: SocketAddr, socket: &UdpSocket) {
    let Ok((_, peer)) = socket.recv_from(&mut [0; 16]) else { return };
    let seen = Seen { listener: at.port(), local: at, peer, original: None };
    let _ = socket.send_to(seen.to_string().as_bytes(), peer);
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        rustix::io::write(&self.stop, &1u64.to_ne_bytes()).unwrap();
        self.server.take().unwrap().join().unwrap();
    }
}
