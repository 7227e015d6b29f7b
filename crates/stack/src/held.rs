//! What the keeper holds for the worker: sockets, links, and the memory of all connections.

use crate::handover::{Restored, restore};
use crate::ledger::Ledger;
use crate::link::Link;
use crate::record::{Ends, Record};
use rustix::fd::{AsFd, OwnedFd};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::closing::Closing;
use sidestep_error::chain;
use sidestep_ring::slot;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest wait for a route, of all connections together. A program's own patience is as long.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// A connection that the worker has.
struct Connection {
    link: u32,
    slot: usize,
    socket: OwnedFd,
}

pub struct Held {
    ledger: Rc<Ledger>,
    links: HashMap<u32, Rc<Link>>,
    connections: HashMap<u32, Connection>,
    closing: Closing,
}

impl Held {
    pub fn new(ledger: Rc<Ledger>) -> Held {
        Held { ledger, links: HashMap::new(), connections: HashMap::new(), closing: Closing::new() }
    }

    /// Handles a message of the worker ([`crate::custody`]).
    pub fn hear(&mut self, msg: &Msg, descriptor: Option<OwnedFd>) {
        match (msg.kind(), descriptor) {
            (Some(Kind::Link), Some(memory)) => {
                // The worker could not map it either.
                if let Ok(link) = Link::new(&memory, msg) {
                    self.links.insert(msg.link, Rc::new(link));
                }
            }
            (Some(Kind::PeerDoorbell), Some(eventfd)) => {
                if let Some(link) = self.links.get(&msg.link) {
                    link.set_doorbell(msg.place as usize, eventfd);
                }
            }
            (Some(Kind::Unlink), None) => drop(self.links.remove(&msg.link)),
            (Some(Kind::Slot), Some(socket)) if msg.offer < self.ledger.records().into() => {
                let connection = Connection { link: msg.link, slot: msg.slot as usize, socket };
                self.connections.insert(msg.offer as u32, connection);
            }
            (Some(Kind::Release), None) => {
                if let Some(Connection { link, slot, socket }) = self.connections.remove(&(msg.offer as u32)) {
                    self.let_go(socket, link, slot);
                }
            }
            _ => {}
        }
    }

    /// The worker is gone: the kernel carries its connections from now on. Returns their addresses. Those that have no way to their
    /// peers keep no other waiting, and are given up together.
    pub fn restore_all(&mut self) -> Vec<Ends> {
        let mut restored = Vec::new();
        let end = Instant::now() + PATIENCE;
        let mut left = std::mem::take(&mut self.connections);
        loop {
            let is_last = Instant::now() > end;
            for (number, connection) in std::mem::take(&mut left) {
                let record = Record::new(self.ledger.clone(), number);
                let ends = record.ends();
                if self.restore_one(&record, &connection, is_last) == Restored::NotYet {
                    left.insert(number, connection);
                    continue;
                }
                record.free();
                restored.extend(ends);
                self.let_go(connection.socket, connection.link, connection.slot);
            }
            if left.is_empty() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        self.links.clear();
        restored
    }

    fn restore_one(&self, record: &Record, connection: &Connection, is_last: bool) -> Restored {
        let Some(link) = self.links.get(&connection.link) else { return Restored::Yes };
        restore(record, link.clone(), connection.slot, connection.socket.as_fd(), is_last).unwrap_or_else(|error| {
            let whose = record.ends().map_or_else(|| "a connection".into(), |ends| ends.remote.to_string());
            tracing::error!("{whose}: {}", chain(&error));
            Restored::Yes
        })
    }

    /// Closes the last copy of a socket, and says so to the program, whose close waits for that.
    fn let_go(&mut self, socket: OwnedFd, link: u32, slot: usize) {
        self.closing.close(socket);
        if let Some(link) = self.links.get(&link) {
            slot::set_socket_held(link.slot(slot), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::tests::{PROGRAM, RING, SLOT, STACK, copy, link, memory_of_a_link};

    #[test]
    fn a_program_whose_connection_is_restored_need_not_wait_to_close_it() {
        let (memory, ledger) = (memory_of_a_link(), Rc::new(Ledger::create(1).expect("a ledger")));
        let (anywhere, words) = (([192, 0, 2, 1], 1).into(), link(&memory, PROGRAM));
        let mut held = Held::new(ledger.clone());
        held.hear(&Msg { side: STACK, arg: RING as u64, ..Msg::new(Kind::Link) }, Some(copy(&memory)));
        held.hear(&Msg { side: STACK, ..Msg::new(Kind::Slot) }, Some(copy(&memory)));
        slot::set_socket_held(words.slot(SLOT), true);
        Record::new(ledger, 0).assign(&Ends { local: anywhere, remote: anywhere });
        assert_eq!(held.restore_all().len(), 1);
        assert!(!slot::is_socket_held(words.slot(SLOT)));
    }
}
