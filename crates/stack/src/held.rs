//! What the keeper holds for the worker: sockets, links, and the memory of all connections.

use crate::executors::Executors;
use crate::handover::{Restored, restore};
use crate::ledger::Ledger;
use crate::link::Link;
use crate::process::this_thread;
use crate::record::{Ends, Record, Stage};
use crate::restoration::Restoration;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::closing::Closing;
use sidestep_broker::domain::Key;
use sidestep_device::end_claim;
use sidestep_error::chain;
use sidestep_ring::slot;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a route, of all connections of a domain together. A program's own patience is as long.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// A connection that the worker has.
struct Connection {
    number: u32,
    link: Arc<Link>,
    slot: usize,
    /// The number of the broker's question, by which the slot tells this connection from others.
    question: u32,
    socket: OwnedFd,
    domain: Key,
}

pub struct Held {
    ledger: Arc<Ledger>,
    links: HashMap<u32, Arc<Link>>,
    connections: HashMap<u32, Connection>,
    executors: Executors<()>,
    /// What says that the worker drives the devices.
    claims: Vec<OwnedFd>,
}

impl Held {
    /// # Errors
    ///
    /// No thread can be started.
    pub fn new(ledger: Arc<Ledger>) -> io::Result<Held> {
        let executors = Executors::start(None)?;
        Ok(Held { ledger, links: HashMap::new(), connections: HashMap::new(), executors, claims: Vec::new() })
    }

    /// Handles a message of the worker ([`crate::custody`]).
    pub fn hear(&mut self, msg: &Msg, descriptor: Option<OwnedFd>) {
        match (msg.kind(), descriptor) {
            (Some(Kind::Link), Some(memory)) => {
                // The worker could not map it either.
                if let Ok(link) = Link::new(&memory, msg) {
                    self.links.insert(msg.link, Arc::new(link));
                }
            }
            (Some(Kind::PeerDoorbell), Some(eventfd)) => {
                if let Some(link) = self.links.get(&msg.link) {
                    link.set_doorbell(msg.place as usize, eventfd);
                }
            }
            (Some(Kind::Unlink), None) => drop(self.links.remove(&msg.link)),
            (Some(Kind::Hello), Some(claim)) => self.claims.push(claim),
            (Some(Kind::Slot), Some(socket)) if msg.arg < self.ledger.records().into() => self.hold(msg, socket),
            (Some(Kind::Release), None) => {
                if let Some(connection) = self.connections.remove(&(msg.arg as u32)) {
                    let domain = connection.domain;
                    let let_go = move |closing: &mut Closing| {
                        connection.let_go(closing);
                        None
                    };
                    self.executors.give(domain, Box::new(let_go));
                    self.executors.leave(domain);
                }
            }
            _ => {}
        }
    }

    fn hold(&mut self, msg: &Msg, socket: OwnedFd) {
        // The worker has told of the link before.
        let Some(link) = self.links.get(&msg.link).cloned() else { return };
        let (number, question, slot) = (msg.arg as u32, msg.side, msg.slot as usize);
        // If no thread can be started, it shares one with others of which that is true.
        let domain = [Key::of(msg), Key::default()].into_iter().find(|domain| self.executors.admit(*domain).is_ok());
        let connection = Connection { number, link, slot, question, socket, domain: domain.unwrap_or_default() };
        self.connections.insert(number, connection);
    }

    /// Ends what says that the worker drives the devices. It has ended.
    pub fn end_claims(&mut self) {
        self.claims.drain(..).for_each(|claim| drop(end_claim(claim.as_fd())));
    }

    /// The addresses of all connections, as far as they are known.
    pub fn ends(&self) -> Vec<Option<Ends>> {
        self.connections.keys().map(|number| self.record(*number).ends()).collect()
    }

    fn record(&self, number: u32) -> Record {
        Record::new(self.ledger.clone(), number)
    }

    /// The worker is gone: the kernel carries its connections from now on. Their executors see to that.
    pub fn restore_all(&mut self, restoration: &Arc<Restoration>) {
        let mut domains: HashMap<Key, Vec<Connection>> = HashMap::new();
        for connection in std::mem::take(&mut self.connections).into_values() {
            domains.entry(connection.domain).or_default().push(connection);
        }
        for (domain, connections) in domains {
            connections.iter().for_each(|_| self.executors.leave(domain));
            // A record that is free may be the next worker's before the executor comes to it. Only the socket is left to be closed.
            let is_over = |connection: &Connection| self.record(connection.number).stage() == Stage::Free;
            let (over, left): (Vec<Connection>, Vec<Connection>) = connections.into_iter().partition(is_over);
            let over: Vec<_> = over.into_iter().map(|one| (self.record(one.number).ends(), one)).collect();
            let (ledger, restoration) = (self.ledger.clone(), restoration.clone());
            let restore = move |closing: &mut Closing| {
                for (ends, connection) in over {
                    connection.let_go(closing);
                    restoration.done(ends);
                }
                restore_each(left, &ledger, &restoration, closing);
                None
            };
            self.executors.give(domain, Box::new(restore));
        }
        self.links.clear();
    }
}

/// Those that have no way to their peers keep no other waiting, and are given up together.
fn restore_each(mut left: Vec<Connection>, ledger: &Arc<Ledger>, restoration: &Restoration, closing: &mut Closing) {
    let end = Instant::now() + PATIENCE;
    loop {
        let is_last = Instant::now() > end;
        for connection in std::mem::take(&mut left) {
            let record = Record::new(ledger.clone(), connection.number);
            take_over(&record, restoration);
            let ends = record.ends();
            if connection.restore(&record, is_last) == Restored::NotYet {
                left.push(connection);
                continue;
            }
            connection.let_go(closing);
            restoration.done(ends);
        }
        if left.is_empty() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Only this thread makes calls on the connection's socket from now on. The standby waits for its end in turn, should this process be
/// killed in a call.
fn take_over(record: &Record, restoration: &Restoration) {
    if record.caller() != this_thread() {
        restoration.wait_for_thread(record.caller());
        record.set_caller(this_thread());
    }
}

impl Connection {
    fn restore(&self, record: &Record, is_last: bool) -> Restored {
        let restored = restore(record, self.link.clone(), self.slot, self.socket.as_fd(), is_last);
        restored.unwrap_or_else(|error| {
            let whose = record.ends().map_or_else(|| "a connection".into(), |ends| ends.remote.to_string());
            tracing::error!("{whose}: {}", chain(&error));
            // One that is restored is free already, and may be the next worker's by now.
            record.free();
            Restored::Yes
        })
    }

    /// Closes this process's copy of the socket, and tells the program, whose close waits for the last copy. Keeper and standby both do so:
    /// the other one's copy is open for a moment longer.
    fn let_go(self, closing: &mut Closing) {
        closing.close(self.socket);
        slot::let_go_of_socket(self.link.slot(self.slot), self.question);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::handover::tests::{PROGRAM, RING, SLOT, STACK, copy, link, memory_of_a_link};
    use crate::process::Process;
    use rustix::fd::BorrowedFd;
    use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
    use sidestep_broker::domain::Domain;
    use sidestep_testkit::held::Held as Lock;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::process::Command;

    /// What comes long before.
    const LONG: Duration = Duration::from_secs(10);
    const MOMENT: Duration = Duration::from_millis(300);
    /// Of a connection that the worker has.
    const QUESTION: u32 = 1 << 31;

    fn held(ledger: &Arc<Ledger>) -> Held {
        Held::new(ledger.clone()).expect("a thread")
    }

    /// The worker has this connection, by a link of the same number. Returns the link's memory.
    pub(crate) fn holds(held: &mut Held, number: u32, socket: BorrowedFd, domain: u128) -> OwnedFd {
        let memory = memory_of_a_link();
        let of_link = |kind| Msg { link: number, side: STACK, ..Msg::new(kind) };
        held.hear(&Msg { arg: RING as u64, ..of_link(Kind::Link) }, Some(copy(&memory)));
        let slot = Msg { arg: number.into(), side: QUESTION, ..of_link(Kind::Slot) };
        held.hear(&Key::from(Domain::Pod(domain)).put_into(slot), Some(copy(socket)));
        slot::hold_socket(link(&memory, PROGRAM).slot(SLOT), QUESTION);
        memory
    }

    pub(crate) fn is_held(memory: &OwnedFd) -> bool {
        slot::is_socket_held(link(memory, PROGRAM).slot(SLOT))
    }

    /// Of a worker that has ended, and of a keeper whose threads have all ended, but for those of this process.
    fn restoring(held: &mut Held) -> Arc<Restoration> {
        let mut child = Command::new("true").spawn().expect("a process");
        let pids = [Pid::from_child(&child), getpid()];
        let pidfds = pids.map(|pid| pidfd_open(pid, PidfdFlags::empty()).expect("a pidfd"));
        child.wait().expect("it ends");
        let broker = Arc::new(copy(std::io::stderr()));
        let ended = pidfds.map(Process::new).into();
        let restoration = Arc::new(Restoration::new(ended, broker, Vec::new(), &held.ends()));
        held.restore_all(&restoration);
        restoration
    }

    pub(crate) fn address(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn a_program_whose_connection_is_restored_need_not_wait_to_close_it() {
        let ledger = Arc::new(Ledger::create(1).expect("a ledger"));
        let mut held = held(&ledger);
        let memory = holds(&mut held, 0, memory_of_a_link().as_fd(), 1);
        Record::new(ledger, 0).assign(&Ends { local: address(1), remote: address(2) });
        let restoration = restoring(&mut held);
        assert_eq!(restoration.next(Instant::now() + LONG).map(|all| all.len()), Some(1));
        assert!(!is_held(&memory));
    }

    #[test]
    fn a_close_that_is_late_is_not_that_of_the_slots_next_connection() {
        let ledger = Arc::new(Ledger::create(1).expect("a ledger"));
        let mut held = held(&ledger);
        let memory = holds(&mut held, 0, memory_of_a_link().as_fd(), 1);
        Record::new(ledger, 0).assign(&Ends { local: address(1), remote: address(2) });
        slot::hold_socket(link(&memory, PROGRAM).slot(SLOT), QUESTION + 1);
        let restoration = restoring(&mut held);
        assert_eq!(restoration.next(Instant::now() + LONG).map(|all| all.len()), Some(1));
        assert!(is_held(&memory));
    }

    /// A connection that a worker had begun to take.
    struct Began {
        record: Record,
        near: TcpStream,
        _far: TcpStream,
    }

    fn being_taken(ledger: &Arc<Ledger>, number: u32) -> Began {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let near = TcpStream::connect(listener.local_addr().expect("its address")).expect("connect");
        let _far = listener.accept().expect("accept").0;
        let record = Record::new(ledger.clone(), number);
        record.assign(&Ends { local: address(number as u16), remote: address(number as u16) });
        record.begin_taking(&sidestep_repair::prepare(&near).expect("it can be taken"));
        Began { record, near, _far }
    }

    #[test]
    fn the_record_of_a_connection_that_is_lost_is_free() {
        let ledger = Arc::new(Ledger::create(1).expect("a ledger"));
        let mut held = held(&ledger);
        let lost = being_taken(&ledger, 0);
        // Every call on what is no socket fails.
        let _memory = holds(&mut held, 0, memory_of_a_link().as_fd(), 1);
        let restoration = restoring(&mut held);
        assert_eq!(restoration.next(Instant::now() + LONG).map(|all| all.len()), Some(1));
        assert_eq!(lost.record.stage(), Stage::Free);
    }

    #[test]
    fn a_record_that_was_free_is_left_to_the_next_worker() {
        let ledger = Arc::new(Ledger::create(8).expect("a ledger"));
        let mut held = held(&ledger);
        let began = being_taken(&ledger, 0);
        let memories: Vec<_> = (0..8).map(|number| holds(&mut held, number, began.near.as_fd(), 1)).collect();
        let lock = Lock::socket(&began.near);
        let restoration = restoring(&mut held);
        let next = |number| Record::new(ledger.clone(), number);
        (1..8).for_each(|number| next(number).assign(&Ends { local: address(2), remote: address(2) }));
        drop(lock);
        assert_eq!(restoration.next(Instant::now() + LONG).map(|all| all.len()), Some(1));
        assert!((1..8).all(|number| next(number).stage() == Stage::Assigned));
        assert!(memories.iter().all(|memory| !is_held(memory)));
    }

    #[test]
    fn who_holds_its_sockets_lock_keeps_no_other_domain_from_the_kernel() {
        let ledger = Arc::new(Ledger::create(2).expect("a ledger"));
        let mut held = held(&ledger);
        let all: Vec<_> = (0..2).map(|number| being_taken(&ledger, number)).collect();
        let mut has =
            |(number, connection): (u32, &Began)| holds(&mut held, number, connection.near.as_fd(), number.into());
        let memories: Vec<_> = (0..).zip(&all).map(&mut has).collect();
        let lock = Lock::socket(&all[0].near);
        let restoration = restoring(&mut held);
        let restored = restoration.next(Instant::now() + LONG).expect("the other domain's");
        assert_eq!(restored.iter().map(|ends| ends.local).collect::<Vec<_>>(), [address(1)]);
        assert!(!is_held(&memories[1]) && is_held(&memories[0]));
        assert_eq!(restoration.next(Instant::now() + MOMENT), None, "the lock is held");
        assert_ne!(all[0].record.caller(), 0, "the next process that restores it waits for this one's call");
        drop(lock);
        assert_eq!(restoration.next(Instant::now() + LONG).map(|all| all.len()), Some(1));
        assert!(!is_held(&memories[0]));
        assert!(all.iter().all(|one| one.record.stage() == Stage::Free));
        assert_eq!(restoration.leave(), (Vec::new(), 0));
    }

    #[test]
    fn a_call_that_a_dead_process_is_in_is_waited_for() {
        let ledger = Arc::new(Ledger::create(2).expect("a ledger"));
        let mut held = held(&ledger);
        let all: Vec<_> = (0..2).map(|number| being_taken(&ledger, number)).collect();
        let (number, thread) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let sleeping = std::thread::spawn(move || {
            number.send(this_thread()).expect("the test waits");
            ends.recv().expect("the test goes on");
        });
        all[0].record.set_caller(thread.recv().expect("it runs"));
        for (number, Began { near, .. }) in (0..).zip(&all) {
            holds(&mut held, number, near.as_fd(), number.into());
        }
        let restoration = restoring(&mut held);
        let restored = restoration.next(Instant::now() + LONG).expect("the one that no thread has");
        assert_eq!(restored[0].local, address(1));
        assert_eq!(restoration.next(Instant::now() + MOMENT), None);
        end.send(()).expect("it waits");
        sleeping.join().expect("it ends");
        assert_eq!(restoration.next(Instant::now() + LONG).map(|all| all.len()), Some(1));
    }
}
