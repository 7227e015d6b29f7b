//! The broker's state, and what each record does to it.
//!
//! Handlers only change state and queue records; [`Broker::settle`] then buries the dead, sends what is queued
//! and tells the poller what to wait for, until nothing changes any more.

mod conn;
mod death;
pub mod hold;
mod links;
mod offers;
mod report;
mod stay;

use crate::link::Link;
use crate::matching::{Matcher, Ticket};
use crate::status::{Reasons, Totals};
use crate::users::Users;
use crate::wire::{self, Incoming, Record};
use conn::{Conn, Member, Role};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_abi::{Reason, VERSION};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

pub use conn::{Interest, Poller};

/// Records read from one connection before the others get their turn.
const TURN: usize = 64;

/// Connections of one user that is neither the broker's own nor root.
const MAX_GUESTS: usize = 1024;

/// Settings that do not change while the broker runs.
pub struct Settings {
    pub address: String,
    pub users: Users,
    pub across_namespaces: bool,
}

pub struct Broker {
    settings: Settings,
    poller: Poller,
    conns: HashMap<u64, Conn>,
    next_conn: u64,
    matcher: Matcher,
    links: HashMap<u32, Link>,
    next_link: u32,
    /// Links of a pair of members, smaller number first.
    pairs: HashMap<(u64, u64), Vec<u32>>,
    /// Sockets that hold a slot, by cookie, and the member that does.
    upgraded: HashMap<u64, u64>,
    /// Link, slot and side that an offer has become, until that side is given back.
    given: HashMap<Ticket, (u32, usize, usize)>,
    /// `detach --all` is in force.
    hold_all: bool,
    /// Something is held: sweep.
    any_hold: bool,
    /// Counters of members that are gone.
    gone: (Totals, Reasons),
    /// What was refused to whom ever, by reason.
    refused: Reasons,
    /// Processes for whose sake the broker stays, by their number in the epoll set.
    stays: HashMap<u64, OwnedFd>,
    dirty: BTreeSet<u64>,
    doomed: BTreeSet<u64>,
}

impl Broker {
    pub fn new(settings: Settings, poller: Poller) -> Broker {
        Broker {
            matcher: Matcher::new(settings.users.clone(), settings.across_namespaces),
            settings,
            poller,
            conns: HashMap::new(),
            next_conn: Poller::FIRST_FREE,
            links: HashMap::new(),
            next_link: 1,
            pairs: HashMap::new(),
            upgraded: HashMap::new(),
            given: HashMap::new(),
            hold_all: false,
            any_hold: false,
            gone: Default::default(),
            refused: Reasons::new(),
            stays: HashMap::new(),
            dirty: BTreeSet::new(),
            doomed: BTreeSet::new(),
        }
    }

    /// Nobody is connected, and nothing would be forgotten by leaving.
    pub fn is_idle(&self) -> bool {
        self.conns.is_empty() && self.stays.is_empty() && !self.hold_all
    }

    pub fn needs_sweep(&self) -> bool {
        self.any_hold
    }

    /// Takes a new connection in.
    pub fn connected(&mut self, socket: OwnedFd) -> io::Result<()> {
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        let Ok(peer) = crate::users::peer_of(&socket) else {
            return Ok(());
        };
        if self.is_crowded_by(peer.uid) {
            return Ok(());
        }
        let id = self.next_conn;
        self.poller.add(&socket, id)?;
        self.next_conn += 1;
        self.conns.insert(id, Conn::new(socket, peer));
        Ok(())
    }

    /// A guest has as many connections as it may.
    fn is_crowded_by(&self, uid: u32) -> bool {
        !self.settings.users.may_command(uid)
            && self.conns.values().filter(|conn| conn.peer.uid == uid).count() >= MAX_GUESTS
    }

    /// Reads what `id` has sent. `hung_up`: nothing more will come.
    pub fn readable(&mut self, id: u64, hung_up: bool) {
        let Some(conn) = self.conns.get(&id) else {
            return self.process_ended(id);
        };
        if hung_up && !conn.interest.read {
            self.doomed.insert(id);
            return;
        }
        for _ in 0..TURN {
            let Some(conn) = self.conns.get(&id).filter(|c| !c.outbox.is_full() && !c.closing) else {
                return;
            };
            match wire::receive(conn.socket.as_fd()) {
                Incoming::Record(record) => self.record(id, record),
                Incoming::Garbage { kind, version } => self.garbage(id, kind, version),
                Incoming::Empty => return,
                Incoming::End => {
                    self.doomed.insert(id);
                }
            }
            if self.doomed.contains(&id) {
                return;
            }
        }
    }

    /// The socket of `id` takes records again.
    pub fn writable(&mut self, id: u64) {
        self.dirty.insert(id);
    }

    /// Works off the consequences of everything done since the last call.
    pub fn settle(&mut self) {
        loop {
            if let Some(id) = self.doomed.pop_first() {
                self.bury(id);
            } else if let Some(id) = self.dirty.pop_first() {
                self.flush(id);
            } else {
                return;
            }
        }
    }

    fn flush(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let flushed = conn.outbox.flush(conn.socket.as_fd());
        if flushed.sent > 0 || std::mem::take(&mut conn.touched) {
            conn.announce();
        }
        if flushed.broken || (conn.closing && conn.outbox.is_empty()) || conn.update_interest(&self.poller, id).is_err()
        {
            self.doomed.insert(id);
        }
    }

    fn record(&mut self, id: u64, record: Record) {
        let Some(conn) = self.conns.get(&id) else {
            return;
        };
        let Some(kind) = record.msg.kind() else {
            return self.violation(id);
        };
        if record.msg.version != VERSION {
            return self.garbage(id, record.msg.kind, record.msg.version);
        }
        match (&conn.role, kind) {
            (Role::New, Kind::Hello) => self.hello(id, &record.msg),
            (Role::New | Role::Command, Kind::Status | Kind::Detach | Kind::Attach | Kind::Stay) => {
                self.command(id, kind, &record.msg);
            }
            (Role::Member(_), Kind::Offer) => self.offered(id, record),
            (Role::Member(_), Kind::Withdraw) => self.withdrawn(Ticket { member: id, offer: record.msg.offer }),
            (Role::Member(_), Kind::Bell) => self.bell(id, record),
            (Role::Member(_), Kind::Release) => self.release(id, &record.msg),
            (Role::Member(_), Kind::Nudge) => self.nudge(id, &record.msg),
            _ => self.violation(id),
        }
    }

    /// Not a record of this version. Somebody who says hello in another version is told so; all else is hostile.
    fn garbage(&mut self, id: u64, kind: u32, version: u32) {
        let greets =
            [Kind::Hello, Kind::Status, Kind::Detach, Kind::Attach, Kind::Stay].iter().any(|&k| k as u32 == kind);
        let member = self.conns.get(&id).is_some_and(|c| matches!(c.role, Role::Member(_)));
        if greets && !member && version != VERSION {
            self.reject(id, Reason::Version);
        } else {
            self.violation(id);
        }
    }

    fn reject(&mut self, id: u64, reason: Reason) {
        self.count_refused(reason);
        self.queue(id, Msg { arg: u64::from(VERSION), ..Msg::new(Kind::Reject) }, None);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.closing = true;
        }
    }

    /// A member that breaks the protocol is treated as dead: its connections go back to the kernel.
    fn violation(&mut self, id: u64) {
        self.count_refused(Reason::BrokenPeer);
        self.doomed.insert(id);
    }

    fn hello(&mut self, id: u64, hello: &Msg) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if !self.settings.users.may_join(conn.peer.uid) {
            return self.reject(id, Reason::UserPair);
        }
        let (page, fd) = match crate::raw::mem::PageMem::create() {
            Ok(made) => made,
            Err(e) => {
                // Hanging up has the process come back later.
                self.count_refused(links::reason_for(e));
                self.doomed.insert(id);
                return;
            }
        };
        conn.role = Role::Member(Box::new(Member::new(conn.peer.pid, page, hello.arg, self.hold_all)));
        self.queue(id, Msg { arg: id, ..Msg::new(Kind::Welcome) }, Some(Rc::new(fd)));
    }

    fn command(&mut self, id: u64, kind: Kind, msg: &Msg) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if !self.settings.users.may_command(conn.peer.uid) {
            self.count_refused(Reason::UserPair);
            let refusal = Msg { arg: libc::EPERM as u64, ..Msg::new(Kind::Unknown) };
            return self.queue(id, refusal, None);
        }
        conn.role = Role::Command;
        match kind {
            Kind::Status => self.send_status(id),
            Kind::Stay => self.stay(id),
            _ => self.set_hold(id, msg, kind == Kind::Detach),
        }
    }

    fn queue(&mut self, id: u64, msg: Msg, fd: Option<Rc<OwnedFd>>) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.outbox.push(msg, fd);
            self.dirty.insert(id);
        }
    }

    fn member(&self, id: u64) -> Option<&Member> {
        match &self.conns.get(&id)?.role {
            Role::Member(member) => Some(member),
            _ => None,
        }
    }

    fn member_mut(&mut self, id: u64) -> Option<&mut Member> {
        match &mut self.conns.get_mut(&id)?.role {
            Role::Member(member) => Some(member),
            _ => None,
        }
    }
}
