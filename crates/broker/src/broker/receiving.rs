//! The main thread and its receivers: accepts connections and hands them to receivers, and handles the receivers' events.

use super::Broker;
use super::conn::{Conn, Role};
use super::whereabouts::place_of;
use crate::cgroup::Place;
use crate::counted::Counted;
use crate::domain::{Domain, Scope};
use crate::netns::View;
use crate::quota::{Accounts, RECEIVERS, RECEIVERS_ELSEWHERE};
use crate::raw::sock;
use crate::receiver::Receiver;
use crate::receiver::loan::Loan;
use crate::receiver::message::{Command, Event};
use crate::wire::Sender;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io;
use rustix::net::Shutdown;
use sidestep_abi::Reason;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Most events of one receiver before the others get their turn.
const TURN: usize = 128;
/// Most connections on their way to a receiver that closes them. Further ones are parked.
const TURNED_AWAY: usize = 16;

impl Broker {
    /// Accepts a connection to the members' socket.
    pub fn connected(&mut self, socket: OwnedFd) {
        let Ok(peer) = crate::users::peer_of(&socket) else {
            return self.turn_away(socket, None);
        };
        let place = place_of(socket.as_fd(), peer.pid);
        let netns = self.namespaces.space_of(socket.as_fd());
        let may_be_pod = self.settings.trust.knows_pods() && !self.namespaces.is_ours(netns);
        if may_be_pod && place.is_none() {
            // Perhaps of a pod, which would have another domain for each of its users.
            return self.turn_away(socket, None);
        }
        let place = Arc::new(place.unwrap_or_default());
        let uid = self.settings.subordinates.counts_as(peer.uid);
        let domain = place.pod.filter(|_| may_be_pod).map_or(Domain::User { uid, netns }, Domain::Pod);
        self.admit(socket, Scope::Domain(domain), Role::New, (peer, place));
    }

    /// Accepts a connection to the operator's socket.
    pub fn operator_connected(&mut self, socket: OwnedFd) {
        let Ok(peer) = crate::users::peer_of(&socket) else {
            return self.turn_away(socket, None);
        };
        self.admit(socket, Scope::Operator, Role::Operator, (peer, Arc::default()));
    }

    /// Turns away a connection for which no descriptor is left.
    pub fn turn_away_at_the_limit(&mut self, socket: OwnedFd) {
        self.turn_away(socket, Some(Reason::FdLimit));
    }

    fn admit(&mut self, socket: OwnedFd, scope: Scope, role: Role, from: (Sender, Arc<Place>)) {
        if rustix::net::sockopt::set_socket_passcred(&socket, true).is_err() {
            return self.turn_away(socket, None);
        }
        let id = self.next_conn;
        let Some(receiver) = self.receiver_of(scope) else {
            return self.turn_away(socket, Some(Reason::Memory));
        };
        let Some(permit) = receiver.accounts.descriptors.claim(1) else {
            return self.turn_away(socket, Some(Reason::FdLimit));
        };
        receiver.connections += 1;
        let socket = Arc::new(Counted::with(socket, permit));
        let loan = Loan::new(socket.clone(), &receiver.mailbox);
        receiver.mailbox.send(Command::Admit { id, socket });
        self.next_conn += 1;
        let watched = self.poller.add_for_its_end(&loan, id);
        self.conns.insert(id, Conn::new(loan, scope, from, role));
        if watched.is_err() {
            self.doomed.insert(id);
        }
    }

    /// The receiver of this scope, started if necessary. None: there are too many, or the system has no resources for it.
    pub(super) fn receiver_of(&mut self, scope: Scope) -> Option<&mut Receiver> {
        if !self.receivers.contains_key(&scope) {
            let receiver = self.start_receiver(scope).ok()?;
            let number = self.next_conn;
            self.poller.add_by_edge(receiver.news.as_fd(), number).ok()?;
            self.next_conn += 1;
            self.receiver_numbers.insert(number, scope);
            self.receivers.insert(scope, receiver);
        }
        self.receivers.get_mut(&scope)
    }

    fn start_receiver(&self, scope: Scope) -> io::Result<Receiver> {
        if self.receivers.len() >= RECEIVERS || self.is_crowded(scope) {
            return Err(io::Errno::AGAIN);
        }
        let pod = if let Scope::Domain(Domain::Pod(pod)) = scope { Some(pod) } else { None };
        let accounts = self.held.get(&scope).cloned().unwrap_or_else(|| Accounts::new(&self.budgets));
        let started = Receiver::start(accounts, View { namespaces: self.namespaces.clone(), pod });
        started.map_err(|e| io::Errno::from_io_error(&e).unwrap_or(io::Errno::AGAIN))
    }

    /// Whether the users of this scope's network namespace have as many receivers as they may.
    fn is_crowded(&self, scope: Scope) -> bool {
        let namespace = |scope: &Scope| match scope {
            Scope::Domain(Domain::User { netns, .. }) => Some(*netns),
            _ => None,
        };
        let Some(netns) = namespace(&scope).filter(|netns| !self.namespaces.is_ours(*netns)) else {
            return false;
        };
        self.receivers.keys().filter(|other| namespace(other) == Some(netns)).count() >= RECEIVERS_ELSEWHERE
    }

    /// Closes a connection that is not accepted. Descriptors in its queue are left to another thread, since closing them may
    /// block.
    fn turn_away(&mut self, socket: OwnedFd, reason: Option<Reason>) {
        if let Some(reason) = reason {
            self.count_refused(reason);
        }
        // From here on nothing more can be queued in the socket.
        let closed = rustix::net::shutdown(&socket, Shutdown::Read);
        if closed.is_err() || !sock::holds_no_descriptor(socket.as_fd()) {
            self.parking.park(socket);
            self.clear_parking();
        }
    }

    /// Hands parked connections to the receiver that only closes, as many as it has room for.
    fn clear_parking(&mut self) {
        while !self.parking.is_empty() {
            let Some(receiver) = self.receiver_of(Scope::Nobody).filter(|r| r.turned_away.load(SeqCst) < TURNED_AWAY)
            else {
                return;
            };
            let (mailbox, count) = (receiver.mailbox.clone(), receiver.turned_away.clone());
            if let Some(socket) = self.parking.leave() {
                count.fetch_add(1, SeqCst);
                mailbox.send(Command::TurnAway(socket));
            }
        }
    }

    /// Whether no connection can be turned away any more, so that none may be accepted.
    pub fn is_clogged(&mut self) -> bool {
        self.clear_parking();
        self.parking.is_full()
    }

    /// Handles the events of a receiver. False: no receiver has this number.
    pub(super) fn hear_receiver(&mut self, number: u64) -> bool {
        let Some(scope) = self.receiver_numbers.get(&number).copied() else {
            return false;
        };
        if let Some(receiver) = self.receivers.get(&scope) {
            receiver.news.answer();
        }
        for _ in 0..TURN {
            let Some(event) = self.receivers.get(&scope).and_then(|receiver| receiver.news.next()) else {
                return true;
            };
            self.happened(scope, event);
        }
        if let Some(receiver) = self.receivers.get(&scope) {
            receiver.news.again();
        }
        true
    }

    fn happened(&mut self, scope: Scope, event: Event) {
        let Some(mailbox) = self.receivers.get(&scope).map(|receiver| receiver.mailbox.clone()) else {
            return;
        };
        let lent = |fd: Option<Arc<Counted>>| fd.map(|fd| Loan::new(fd, &mailbox));
        match event {
            Event::Record { id, msg } => self.record(id, &msg),
            Event::Garbage { id, kind, version } => self.garbage(id, kind, version),
            Event::End { id } => drop(self.doomed.insert(id)),
            Event::Offer { id, msg, sender, what } if self.is_member(id) => self.offered(id, &msg, sender, what),
            Event::Doorbell { id, place, own } if self.is_member(id) => self.doorbell(id, place, lent(own)),
            Event::Doorbell { id, own, .. } => {
                drop(lent(own));
                self.violation(id);
            }
            Event::Offer { id, .. } => self.violation(id),
            Event::Ringer(ringing, ringer) => {
                let closes = self.ringing.get(&(ringing.link, ringing.side)).unwrap_or(&mailbox);
                let ringer = ringer.map(|fd| Loan::new(fd, closes));
                self.ringer(ringing, ringer);
            }
            Event::Answer { id, number } => self.answered(id, number),
            Event::Unrung { link, side, ringers } => self.unrung(link, side, ringers),
            Event::Proved { ticket, socket, unchanged, standings } => {
                self.proved((ticket, socket), unchanged, &standings);
            }
            Event::Lent { ticket, fd } => self.show_to_stack(ticket, Loan::new(fd, &mailbox)),
            Event::Rechecked(gone) => {
                if let Some(receiver) = self.receivers.get_mut(&scope) {
                    receiver.rechecks -= 1;
                }
                gone.into_iter().for_each(|ticket| self.remove_waiting(ticket));
            }
            Event::Punched { link, slot } => {
                if let Some(receiver) = self.receivers.get_mut(&scope) {
                    receiver.punching -= 1;
                }
                self.punched(link, slot);
            }
            Event::Idle => {
                drop(mailbox);
                self.end_if_done(scope);
            }
        }
    }

    fn end_if_done(&mut self, scope: Scope) {
        let lives = |domain: &Domain| self.receivers.contains_key(&Scope::Domain(*domain));
        let is_needed = matches!(scope, Scope::Both(a, b) if lives(&a) && lives(&b));
        if is_needed || !self.receivers.get(&scope).is_some_and(Receiver::is_done) {
            return;
        }
        if let Some(receiver) = self.receivers.remove(&scope) {
            self.poller.remove(receiver.news.as_fd());
            self.keep_accounts(scope, receiver);
            self.receiver_numbers.retain(|_, other| *other != scope);
            self.namespaces.forget_unused();
        }
        // Work that the domain shared with others has ended with it.
        let others: Vec<_> = self.receivers.keys().filter(|s| matches!(s, Scope::Both(..))).copied().collect();
        others.into_iter().filter(|_| !matches!(scope, Scope::Both(..))).for_each(|other| self.end_if_done(other));
    }

    /// A receiver has ended. What its domain still holds (processes that live on, closes that take long) counts when it comes again.
    fn keep_accounts(&mut self, scope: Scope, ended: Receiver) {
        self.held.insert(scope, ended.accounts.clone());
        drop(ended);
        self.held.retain(|_, accounts| !accounts.are_clear());
    }

    fn is_member(&self, id: u64) -> bool {
        self.member(id).is_some()
    }
}
