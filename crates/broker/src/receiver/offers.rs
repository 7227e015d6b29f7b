//! Offered sockets. A receiver holds each one until the main thread has decided about it: a pair is proved with one socket in
//! hand and the other one found alive.

use super::message::{Claim, Event, InHand, Liveness, Offered};
use crate::closing::Closing;
use crate::counted::Counted;
use crate::matching::Ticket;
use crate::netns::{Namespace, NoNamespace, View};
use crate::proof::{self, AddressSpace, NoProof, SocketFacts};
use crate::quota::Account;
use crate::wire::Record;
use rustix::fd::{AsFd, OwnedFd};
use sidestep_abi::Reason;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A socket that the receiver holds.
struct Held {
    member: u64,
    fd: Counted,
    /// Its facts when it arrived, as the socket says them.
    facts: SocketFacts,
}

pub struct Offers {
    account: Arc<Account>,
    view: View,
    held: BTreeMap<InHand, Held>,
    next: u64,
    closing: Closing,
}

impl Offers {
    pub fn new(account: Arc<Account>, view: View) -> Offers {
        Offers { account, view, held: BTreeMap::new(), next: 0, closing: Closing::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether sockets linger that were let go of.
    pub fn is_closing(&mut self) -> bool {
        self.closing.is_busy()
    }

    pub fn offered(&mut self, id: u64, record: Record) -> Event {
        let (msg, sender) = (record.msg, record.sender);
        let what = match record.fd {
            Some(fd) => self.hold(id, fd),
            None if record.fd_lost => Offered::Refuse(Reason::FdLimit),
            None => Offered::Violation,
        };
        Event::Offer { id, msg, sender, what }
    }

    fn hold(&mut self, member: u64, fd: OwnedFd) -> Offered {
        match proof::identify(&fd).map_err(refusal).and_then(|facts| Ok((self.space_of(&facts, &fd)?, facts))) {
            Err(reason) => {
                // The descriptor counts in the quota until it is closed, which may take a while. Without room in the quota it
                // is closed here.
                if let Some(fd) = Counted::new(fd, &self.account) {
                    self.closing.close(fd);
                }
                Offered::Refuse(reason)
            }
            Ok((namespace, facts)) => match Counted::new(fd, &self.account) {
                None => Offered::NoRoom(facts),
                Some(fd) => {
                    let socket = InHand(self.next);
                    self.next += 1;
                    self.held.insert(socket, Held { member, fd, facts });
                    let pod = self.view.pod.filter(|_| !namespace.is_ours);
                    let facts = SocketFacts { space: AddressSpace { pod, ..facts.space }, ..facts };
                    Offered::Socket(facts, namespace, socket)
                }
            },
        }
    }

    fn space_of(&self, facts: &SocketFacts, fd: &OwnedFd) -> Result<Arc<Namespace>, Reason> {
        self.view.of_socket(facts.space.netns, fd, &self.account).map_err(|why| match why {
            NoNamespace::OfAnotherUser => Reason::Namespace,
            NoNamespace::Closed => Reason::Unproven,
            NoNamespace::Full => Reason::FdLimit,
        })
    }

    /// Looks for the sockets of the others, and then at the socket in hand again. If that one is unchanged, they were alive
    /// together. Then a pair may follow at once, so it is let go: of an upgraded connection nobody else delays the end.
    pub fn prove(&mut self, ticket: Ticket, socket: InHand, against: &[Claim]) -> Event {
        let standings: Vec<_> = against.iter().map(|claim| (claim.ticket, standing(claim))).collect();
        let is_found = standings.iter().any(|(_, liveness)| *liveness == Liveness::Alive);
        let is_same = self.held.get(&socket).is_some_and(|held| proof::identify(&held.fd).as_ref() == Ok(&held.facts));
        let unchanged = is_same && (!is_found || self.let_go(socket));
        Event::Proved { ticket, socket, unchanged, standings }
    }

    pub fn recheck(&self, claims: &[Claim]) -> Event {
        Event::Rechecked(claims.iter().filter(|c| standing(c) == Liveness::Gone).map(|c| c.ticket).collect())
    }

    /// False: it lingers, since its program has closed it.
    pub fn let_go(&mut self, socket: InHand) -> bool {
        self.held.remove(&socket).is_none_or(|held| self.closing.close(held.fd))
    }

    /// No longer holds the socket. None: it held none.
    pub fn lend(&mut self, ticket: Ticket, socket: InHand) -> Option<Event> {
        self.held.remove(&socket).map(|held| Event::Lent { ticket, fd: Arc::new(held.fd) })
    }

    /// Closes a descriptor that was lent, or one of any other kind.
    pub fn close(&mut self, fd: impl AsFd + Send + 'static) {
        self.closing.close(fd);
    }

    pub fn dismiss(&mut self, member: u64) {
        let gone: Vec<_> =
            self.held.iter().filter(|(_, held)| held.member == member).map(|(socket, _)| *socket).collect();
        for socket in gone {
            self.let_go(socket);
        }
    }
}

fn standing(claim: &Claim) -> Liveness {
    match claim.namespace.has(&claim.facts) {
        Ok(true) => Liveness::Alive,
        Ok(false) => Liveness::Gone,
        Err(_) => Liveness::Unknown,
    }
}

fn refusal(why: NoProof) -> Reason {
    match why {
        NoProof::NotConnected => Reason::Short,
        NoProof::NotTcp | NoProof::OldKernel => Reason::Foreign,
    }
}
