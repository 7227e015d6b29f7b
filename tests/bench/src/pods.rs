//! The backends of a Service: one thread that answers at many addresses.
//!
//! One thread for all of them, so that what is measured on one processor is the work of the kernel and not the choice
//! of the scheduler among servers.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use crate::args::Args;
use crate::epoll::Epoll;
use crate::net;

/// Of a request and of its answer.
pub const MESSAGE: usize = 64;
/// At most so many of epoll at once.
const EVENTS: usize = 64;

struct Pods {
    epoll: Epoll,
    listeners: HashMap<RawFd, (u8, TcpListener)>,
    /// With the number of the pod that accepted it.
    connections: HashMap<RawFd, (u8, TcpStream)>,
}

pub fn run(args: &Args) -> Result<(), String> {
    let addresses: String = args.required("at")?;
    args.finish()?;
    let mut pods = Pods { epoll: Epoll::new(EVENTS)?, listeners: HashMap::new(), connections: HashMap::new() };
    for (number, address) in (0u8..).zip(addresses.split(',')) {
        let listener = TcpListener::bind(address).map_err(|e| format!("--at {address}: {e}"))?;
        listener.set_nonblocking(true).map_err(|e| format!("O_NONBLOCK: {e}"))?;
        watch(&pods.epoll, &listener)?;
        pods.listeners.insert(listener.as_raw_fd(), (number, listener));
    }
    net::say("ready")?;
    pods.serve()
}

impl Pods {
    /// Until whoever started us ends us.
    fn serve(&mut self) -> Result<(), String> {
        let mut ready = Vec::new();
        loop {
            ready.clear();
            ready.extend(self.epoll.wait()?.map(|key| key as RawFd));
            for fd in ready.iter().copied() {
                match self.listeners.get(&fd) {
                    Some((number, listener)) => accept(&self.epoll, &mut self.connections, *number, listener)?,
                    None => self.answer(fd),
                }
            }
        }
    }

    /// A client that has gone, with a reset or not, is none to answer.
    fn answer(&mut self, fd: RawFd) {
        let Some((number, stream)) = self.connections.get_mut(&fd) else { return };
        let mut message = [0u8; MESSAGE];
        let asked = matches!(stream.read(&mut message), Ok(MESSAGE));
        message[0] = *number;
        if !asked || stream.write_all(&message).is_err() {
            self.connections.remove(&fd);
        }
    }
}

fn accept(
    epoll: &Epoll,
    connections: &mut HashMap<RawFd, (u8, TcpStream)>,
    number: u8,
    listener: &TcpListener,
) -> Result<(), String> {
    match listener.accept() {
        Ok((stream, _)) => {
            watch(epoll, &stream)?;
            connections.insert(stream.as_raw_fd(), (number, stream));
            Ok(())
        }
        Err(why) if why.kind() == ErrorKind::WouldBlock || why.kind() == ErrorKind::ConnectionAborted => Ok(()),
        Err(why) => Err(format!("accept: {why}")),
    }
}

/// The key is the descriptor.
fn watch(epoll: &Epoll, what: &impl AsRawFd) -> Result<(), String> {
    epoll.add(what.as_raw_fd(), what.as_raw_fd() as u64)
}
