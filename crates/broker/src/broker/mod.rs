//! The broker's state, and what each record does to it.
//!
//! Handlers only change state and queue records. Then [`Broker::settle`] removes dead connections, sends the queued records and
//! updates the poller, until nothing changes any more.

mod conn;
mod cut_off;
mod death;
pub mod hold;
mod links;
pub mod offers;
mod pair;
mod pods;
mod receiving;
mod report;
mod settled;
mod stack;
mod stay;
mod whereabouts;

use crate::domain::Scope;
use crate::link::Link;
use crate::matching::{Matcher, Ticket};
use crate::netns::Namespaces;
use crate::outbox::Attached;
use crate::parking::Parking;
use crate::quota::{Accounts, Budgets};
use crate::receiver::Receiver;
use crate::receiver::loan::Loan;
use crate::receiver::mailbox::Mailbox;
use crate::receiver::message::Command;
use crate::room::Room;
use crate::status::{Reasons, Totals};
use crate::subordinates::Subordinates;
use crate::trust::Trust;
use conn::{Conn, Member, Role, Talk};
use cut_off::CutOff;
use links::Opening;
use offers::{Pending, Proving};
use pods::Pods;
use rustix::fd::AsFd;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_abi::{Reason, VERSION, speaks};
use stack::Stack;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

pub use conn::Poller;

/// What the broker was told. The rules of trust and the subordinate users may change while it runs.
pub struct Settings {
    /// The address where members connect.
    pub address: String,
    /// Who may share memory.
    pub trust: Trust,
    /// Which users are one domain.
    pub subordinates: Subordinates,
    /// Whether ends in different network namespaces are paired.
    pub across_namespaces: bool,
}

type Receivers = HashMap<Scope, Receiver>;

/// The state of the main thread: members, offers, links, holds.
pub struct Broker {
    settings: Settings,
    poller: Poller,
    budgets: Budgets,
    namespaces: Arc<Namespaces>,
    receivers: Receivers,
    /// Accounts of domains whose receiver has ended, and of whom something is still held: the next receiver goes on with these.
    held: BTreeMap<Scope, Accounts>,
    /// Scopes of the receivers, by their numbers in the poller.
    receiver_numbers: HashMap<u64, Scope>,
    /// Connections that were turned away, and that no receiver has closed yet.
    parking: Parking,
    conns: HashMap<u64, Conn>,
    next_conn: u64,
    matcher: Matcher,
    /// Offers in the matcher.
    waiting: HashMap<Ticket, Pending>,
    /// Offers that are being proved, before they reach the matcher.
    proving: BTreeMap<Ticket, Proving>,
    /// Waiting offers in the order of the last look for their sockets, oldest first.
    to_recheck: VecDeque<Ticket>,
    next_recheck: Instant,
    links: HashMap<u32, Link>,
    /// Links that have not been announced to their members yet.
    openings: HashMap<u32, Opening>,
    next_link: u32,
    /// Mailboxes of the receivers that close the eventfds with which members ring, by link and ringing side. Each keeps its
    /// receiver alive until then.
    ringing: HashMap<(u32, usize), Arc<Mailbox>>,
    /// Links of each pair of members, smaller number first.
    pairs: HashMap<(u64, u64), Vec<u32>>,
    /// Cookies of the sockets that hold a slot, and the member that holds it.
    upgraded: HashMap<u64, u64>,
    /// Link, slot and side that an offer was given, until that side is released.
    given: HashMap<Ticket, (u32, usize, usize)>,
    /// `detach --all` is in force.
    hold_all: bool,
    /// Some connection is held, so [`Broker::sweep`] looks at all.
    any_hold: bool,
    /// Counters of members that are gone.
    gone: (Totals, Reasons),
    /// Counters by pod.
    pods: Pods,
    /// Number of refusals since the start, by reason.
    refused: Reasons,
    /// Number of connections between users that may not share memory.
    strangers: BTreeMap<[u32; 2], u64>,
    /// Processes for which the broker stays, by their number in the poller.
    stays: HashMap<u64, Loan>,
    /// Processes that the broker has hung up on and that may live, by number in the poller.
    cut_off: BTreeMap<u64, CutOff>,
    /// The stack, and what it has been asked.
    stack: Stack,
    /// Operators that asked for the status.
    status_asked: BTreeSet<u64>,
    /// Members that asked for an answer once none of their requests is under way, and the number of their question.
    unsettled: BTreeMap<u64, u64>,
    dirty: BTreeSet<u64>,
    /// Connections with a record whose descriptor the kernel does not take now: [`Broker::sweep`] tries again.
    starved: BTreeSet<u64>,
    doomed: BTreeSet<u64>,
}

impl Broker {
    /// A broker without members. It registers connections with the poller.
    pub fn new(settings: Settings, poller: Poller) -> Broker {
        Broker {
            matcher: Matcher::new(settings.trust.clone(), settings.across_namespaces),
            settings,
            poller,
            budgets: Budgets::of_this_process(),
            namespaces: Arc::new(Namespaces::of_this_process()),
            receivers: Receivers::new(),
            held: BTreeMap::new(),
            receiver_numbers: HashMap::new(),
            parking: Parking::default(),
            conns: HashMap::new(),
            next_conn: Poller::FIRST_FREE,
            waiting: HashMap::new(),
            proving: BTreeMap::new(),
            to_recheck: VecDeque::new(),
            next_recheck: Instant::now() + offers::RECHECK,
            links: HashMap::new(),
            openings: HashMap::new(),
            next_link: 1,
            ringing: HashMap::new(),
            pairs: HashMap::new(),
            upgraded: HashMap::new(),
            given: HashMap::new(),
            hold_all: false,
            any_hold: false,
            gone: Default::default(),
            pods: Pods::default(),
            refused: Reasons::new(),
            strangers: BTreeMap::new(),
            stays: HashMap::new(),
            cut_off: BTreeMap::new(),
            stack: Stack::default(),
            status_asked: BTreeSet::new(),
            unsettled: BTreeMap::new(),
            dirty: BTreeSet::new(),
            starved: BTreeSet::new(),
            doomed: BTreeSet::new(),
        }
    }

    /// Whether nobody is connected, and nothing would be lost if the broker ended.
    pub fn is_idle(&self) -> bool {
        self.conns.is_empty() && self.stays.is_empty() && !self.hold_all
    }

    /// Whether [`Broker::sweep`] has something to do.
    pub fn needs_sweep(&self) -> bool {
        self.any_hold || !self.starved.is_empty()
    }

    /// Replaces the rules of who may share memory. Connections whose ends may not any more go back to the kernel.
    pub fn set_trust(&mut self, trust: Trust) {
        self.matcher.set_trust(trust.clone());
        self.settings.trust = trust;
        self.obey_trust();
    }

    /// Replaces which users are one domain, for those that connect from now on.
    pub fn set_subordinates(&mut self, subordinates: Subordinates) {
        self.settings.subordinates = subordinates;
    }

    /// A descriptor in the poller that is no connection is readable.
    pub fn readable(&mut self, number: u64) {
        if !self.hear_receiver(number) {
            self.process_ended(number);
        }
    }

    /// The other end of `id` is gone. Records that it sent before are ignored.
    pub fn hung_up(&mut self, id: u64) {
        self.doomed.insert(id);
    }

    /// The socket of `id` takes records again.
    pub fn writable(&mut self, id: u64) {
        self.dirty.insert(id);
    }

    /// Handles all consequences of the calls since the last one.
    pub fn settle(&mut self) {
        loop {
            if let Some(id) = self.doomed.pop_first() {
                self.bury(id);
            } else if let Some(id) = self.dirty.pop_first() {
                self.flush(id);
            } else if let Some(id) = self.status_asked.pop_first() {
                self.send_status(id);
            } else {
                self.watch_cut_off();
                self.ask_receivers_of_settled();
                return self.receivers.values().for_each(|receiver| receiver.mailbox.wake());
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
        let is_over = flushed.broken || (conn.talk == Talk::Closing && conn.outbox.is_empty());
        if is_over || conn.ask_for_room(&self.poller, id, flushed.starved).is_err() {
            self.doomed.insert(id);
            return;
        }
        if flushed.starved {
            self.starved.insert(id);
        }
        let unheard = conn.outbox.is_full() || conn.talk == Talk::Closing;
        if unheard != std::mem::replace(&mut conn.unheard, unheard) {
            self.command(id, Command::Listen { id, listen: !unheard });
        }
    }

    fn record(&mut self, id: u64, msg: &Msg) {
        // Records of a connection that is being closed are ignored.
        let is_heard = |conn: &&mut Conn| conn.talk == Talk::Open && !self.doomed.contains(&id);
        let Some(conn) = self.conns.get_mut(&id).filter(is_heard) else {
            return;
        };
        let Some(kind) = msg.kind() else {
            return self.violation(id);
        };
        let is_member = matches!(conn.role, Role::Member(_));
        if !speaks(msg.version) || is_member && msg.version != conn.version {
            return self.garbage(id, msg.kind, msg.version);
        }
        conn.version = msg.version;
        match (&conn.role, kind) {
            (Role::New | Role::Operator, Kind::Hello) => self.hello(id, msg),
            (Role::New, Kind::Stay) => self.stay(id),
            // An operator that asks again before it has its answer gets one answer: each is a file.
            (Role::Operator, Kind::Status) => drop(self.status_asked.insert(id)),
            (Role::Operator, Kind::Detach | Kind::Attach) => self.set_hold(id, msg, kind == Kind::Detach),
            (Role::Member(_), Kind::Withdraw) => self.withdrawn(Ticket { member: id, offer: msg.offer }),
            (Role::Member(_), Kind::Press) => self.pressed(Ticket { member: id, offer: msg.offer }),
            (Role::Member(_), Kind::Release) => self.release(id, msg),
            (Role::Member(_), Kind::Settle) => self.settle_asked(id, msg.arg),
            (Role::Member(_), Kind::Carry) => self.stack_answers(id, msg),
            _ => self.violation(id),
        }
    }

    /// The record is not of this version. A greeting in another version is answered with the reason; anything else is a
    /// violation.
    fn garbage(&mut self, id: u64, kind: u32, version: u32) {
        let greets =
            [Kind::Hello, Kind::Status, Kind::Detach, Kind::Attach, Kind::Stay].iter().any(|&k| k as u32 == kind);
        let member = self.conns.get(&id).is_some_and(|c| matches!(c.role, Role::Member(_)));
        if greets && !member && !speaks(version) {
            self.reject(id, Reason::Version);
        } else {
            self.violation(id);
        }
    }

    fn reject(&mut self, id: u64, reason: Reason) {
        self.count_refused(reason);
        self.queue(id, Msg { arg: u64::from(VERSION), ..Msg::new(Kind::Reject) }, None);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.talk = Talk::Closing;
        }
    }

    /// A member that violates the protocol is treated as dead: its connections go back to the kernel.
    fn violation(&mut self, id: u64) {
        self.count_refused(Reason::BrokenPeer);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.talk = Talk::Violated;
        }
        self.doomed.insert(id);
    }

    fn hello(&mut self, id: u64, hello: &Msg) {
        let Some(uid) = self.conns.get(&id).map(|conn| conn.peer.uid) else {
            return;
        };
        if !self.settings.trust.may_join(uid) {
            return self.reject(id, Reason::UserPair);
        }
        let mapping = self.accounts_of(id).and_then(|accounts| accounts.mappings.claim(1)).ok_or(Reason::Memory);
        let made = mapping.and_then(|mapping| {
            crate::raw::mem::PageMem::create().map(|made| (mapping, made)).map_err(links::reason_for)
        });
        let (mapping, (page, fd)) = match made {
            Ok(made) => made,
            Err(reason) => {
                // The broker hangs up, so the process tries again later.
                self.count_refused(reason);
                self.doomed.insert(id);
                return;
            }
        };
        let hold = self.hold_all;
        if let Some(conn) = self.conns.get_mut(&id) {
            let room = Room::new(conn.scope, hello.arg2);
            conn.role = Role::Member(Box::new(Member::new(conn.peer.pid, page, mapping, hello, room, hold)));
            self.pods.joined(id, conn.scope);
        }
        self.queue(id, Msg { arg: id, ..Msg::new(Kind::Welcome) }, Some(Attached::File(Arc::new(fd))));
        self.may_be_stack(id);
    }

    fn queue(&mut self, id: u64, msg: Msg, fd: Option<Attached>) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let pushed = match self.receivers.get(&conn.scope) {
            Some(receiver) => {
                let msg = Msg { version: conn.version, ..msg };
                conn.outbox.push(msg, fd, &receiver.accounts.records)
            }
            None => Err(crate::outbox::Overflow),
        };
        match pushed {
            Ok(()) => drop(self.dirty.insert(id)),
            // The member does not read its records, and its domain has no room for more. It may join again later.
            Err(_) => {
                self.count_refused(Reason::Memory);
                self.doomed.insert(id);
            }
        }
    }

    fn scope_of(&self, id: u64) -> Scope {
        self.conns.get(&id).map_or(Scope::Nobody, |conn| conn.scope)
    }

    fn accounts_of(&self, id: u64) -> Option<&Accounts> {
        self.receivers.get(&self.scope_of(id)).map(|receiver| &receiver.accounts)
    }

    /// Sends a command to the receiver that reads from `id`.
    fn command(&self, id: u64, command: Command) {
        if let Some(receiver) = self.receivers.get(&self.scope_of(id)) {
            receiver.mailbox.send(command);
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
