//! One probe and its outcome. Nothing here knows which of the twins it is in.

use super::probes::{Probe, Source};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use sidestep_mesh::address::Protocol;
use sidestep_testkit::greeter::Seen;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered {
        seen: Seen,
        /// The client's view of both ends; for a datagram, `peer` is the source of the answer.
        local: SocketAddr,
        peer: SocketAddr,
    },
    Failed(i32),
    /// Nothing came in time.
    Silent,
}

impl Outcome {
    /// Removes ports that the kernel has chosen, which may differ; but both ends must agree on them.
    fn without_chosen_port(mut self, probe: &Probe) -> Outcome {
        if let Outcome::Answered { seen, local, .. } = &mut self
            && !matches!(probe.source, Source::Port(..))
            && seen.peer.port() == local.port()
        {
            seen.peer.set_port(0);
            local.set_port(0);
        }
        self
    }
}

/// Dials in the calling thread's namespace, as its user.
pub fn dial(probe: &Probe, patience: Duration) -> Outcome {
    let done = match probe.protocol {
        Protocol::Tcp => stream(probe, patience),
        _ => datagram(probe, patience),
    };
    let outcome = done.unwrap_or_else(|error| match error.raw_os_error() {
        _ if error.kind() == io::ErrorKind::TimedOut => Outcome::Silent,
        Some(number) => Outcome::Failed(number),
        None => panic!("{probe:?}: {error}"),
    });
    outcome.without_chosen_port(probe)
}

fn stream(probe: &Probe, patience: Duration) -> io::Result<Outcome> {
    let socket = socket(probe, SocketType::STREAM)?;
    match rustix::net::connect(&socket, &probe.to) {
        Err(rustix::io::Errno::INPROGRESS) => {}
        done => done?,
    }
    wait(&socket, PollFlags::OUT, patience)?;
    sockopt::socket_error(&socket)??;
    let stream = TcpStream::from(socket);
    let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
    wait(&stream, PollFlags::IN, patience)?;
    stream.set_nonblocking(false)?;
    Ok(Outcome::Answered { seen: Seen::read(&stream)?, local, peer })
}

fn datagram(probe: &Probe, patience: Duration) -> io::Result<Outcome> {
    let socket = UdpSocket::from(socket(probe, SocketType::DGRAM)?);
    if probe.connected {
        socket.connect(probe.to)?;
        socket.send(b"?")?;
    } else {
        socket.send_to(b"?", probe.to)?;
    }
    wait(&socket, PollFlags::IN, patience)?;
    let mut text = [0; 256];
    let (length, peer) = socket.recv_from(&mut text)?;
    assert!(!probe.connected || socket.peer_addr()? == peer);
    let seen = Seen::said(std::str::from_utf8(&text[..length]).unwrap())?;
    Ok(Outcome::Answered { seen, local: socket.local_addr()?, peer })
}

fn socket(probe: &Probe, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if probe.to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::NONBLOCK, None)?;
    if let Some(device) = probe.device {
        bind_to_device(&socket, device)?;
    }
    match probe.source {
        Source::None => {}
        Source::Address(ip) => rustix::net::bind(&socket, &SocketAddr::new(ip, 0))?,
        Source::Port(ip, port) => rustix::net::bind(&socket, &SocketAddr::new(ip, port))?,
    }
    Ok(socket)
}

fn bind_to_device(socket: &OwnedFd, device: &str) -> io::Result<()> {
    // SAFETY: the name lives until the call returns, and its length is told.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            device.as_ptr().cast(),
            device.len() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn wait(socket: &impl AsFd, what: PollFlags, patience: Duration) -> io::Result<()> {
    let limit = Timespec::try_from(patience).unwrap();
    let ready = poll(&mut [PollFd::new(socket, what)], Some(&limit))?;
    if ready == 0 { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}
