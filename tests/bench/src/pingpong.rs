//! One message to and fro between two processes, blocking or in an epoll loop.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use crate::args::{Args, Role};
use crate::epoll::Epoll;
use crate::{clock, net};

/// Round trips for one look at the clock.
const BATCH: u32 = 16;

pub fn run(args: &Args) -> Result<(), String> {
    let role = args.role()?;
    let size: usize = args.get("size", 64)?;
    let with_epoll = match args.get("mode", "blocking".to_string())?.as_str() {
        "epoll" => true,
        "blocking" => false,
        other => return Err(format!("--mode: '{other}' is neither epoll nor blocking")),
    };
    let mut message = vec![0u8; size];
    match role {
        Role::Server => {
            args.finish()?;
            let listener = net::listen(0)?;
            net::announce(&listener)?;
            let mut peer = Peer::new(net::accept(&listener)?, with_epoll)?;
            while peer.receive(&mut message)? {
                peer.send(&message)?;
            }
            Ok(())
        }
        Role::Client => {
            let length = args.seconds()?;
            let mut peer = Peer::new(net::connect(args, 0)?, with_epoll)?;
            args.finish()?;
            let mut count = 0u64;
            let times = clock::repeat(length, BATCH, || {
                count += 1;
                round_trip(&mut peer, &mut message, count)
            })?;
            net::say(&format!("{{{}}}", times.json_us()))
        }
    }
}

/// Each message carries its number, so that a stale or lost one is noticed.
fn round_trip(peer: &mut Peer, message: &mut [u8], count: u64) -> Result<(), String> {
    let stamp = count.to_ne_bytes();
    let kept = stamp.len().min(message.len());
    message[..kept].copy_from_slice(&stamp[..kept]);
    peer.send(message)?;
    if !peer.receive(message)? {
        return Err("the server closed the connection".into());
    }
    if message[..kept] != stamp[..kept] {
        return Err(format!("answer {count} does not carry its number"));
    }
    Ok(())
}

/// One end of the connection and the way it waits.
struct Peer {
    stream: TcpStream,
    epoll: Option<Epoll>,
}

impl Peer {
    fn new(stream: TcpStream, with_epoll: bool) -> Result<Self, String> {
        let mut epoll = None;
        if with_epoll {
            stream.set_nonblocking(true).map_err(|e| format!("O_NONBLOCK: {e}"))?;
            let set = Epoll::new(8)?;
            set.add(stream.as_raw_fd(), 0)?;
            epoll = Some(set);
        }
        Ok(Peer { stream, epoll })
    }

    /// A whole message; false when the other end has closed before its first byte.
    fn receive(&mut self, message: &mut [u8]) -> Result<bool, String> {
        let mut filled = 0;
        while filled < message.len() {
            if let Some(epoll) = &mut self.epoll {
                let _ = epoll.wait()?; // the one descriptor; read() says what came
            }
            match self.stream.read(&mut message[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err("the connection ended inside a message".into()),
                Ok(count) => filled += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock && self.epoll.is_some() => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("read: {e}")),
            }
        }
        Ok(true)
    }

    /// Messages are small and go one at a time: they always fit into an empty buffer.
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        self.stream.write_all(message).map_err(|e| format!("write: {e}"))
    }
}
