//! The client of a Service: connections that carry one message of 64 bytes each way, and end with a reset.

use crate::net;
use crate::pods::MESSAGE;
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Addresses that are dialled in turn, as a Service uses its backends.
pub struct Targets {
    all: Vec<SocketAddrV4>,
    turn: usize,
}

impl Targets {
    /// `ADDRESS:PORT`, apart by commas.
    pub fn parse(text: &str) -> Result<Targets, String> {
        let all: Result<Vec<_>, _> =
            text.split(',').map(|one| one.parse().map_err(|_| format!("--to: '{one}' is not ADDRESS:PORT"))).collect();
        Ok(Targets { all: all?, turn: 0 })
    }

    pub fn next(&mut self) -> SocketAddrV4 {
        self.turn = self.turn.wrapping_add(1);
        self.all[self.turn % self.all.len()]
    }
}

/// Longer than a Service takes that is there.
const PATIENCE: Duration = Duration::from_millis(50);

/// The number of the pod that answers a new connection; None where none arrives, as of a Service that is not there yet.
pub fn try_one(to: SocketAddrV4) -> Option<u8> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::V4(to), PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let pod = request(&mut stream).ok()?;
    reset(stream).ok()?;
    Some(pod)
}

/// The number of the pod that answers a new connection.
pub fn one(to: SocketAddrV4) -> Result<u8, String> {
    let mut stream = net::connect(net::tcp_socket()?, to)?;
    let pod = request(&mut stream)?;
    reset(stream)?;
    Ok(pod)
}

/// One request and its answer. Returns the number of the pod.
pub fn request(stream: &mut TcpStream) -> Result<u8, String> {
    let mut message = [0x42u8; MESSAGE];
    stream.write_all(&message).map_err(|e| format!("write: {e}"))?;
    stream.read_exact(&mut message).map_err(|e| format!("read: {e}"))?;
    Ok(message[0])
}

/// Closes without TIME_WAIT, so that many connections do not use up the ports.
pub fn reset(stream: TcpStream) -> Result<(), String> {
    net::reset_at_close(stream.as_raw_fd())
}
