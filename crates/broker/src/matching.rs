//! Which two offered sockets are the two ends of one connection.
//!
//! One end, the caller, *called* an address. The other end, the answerer, answers there. Without NAT the called address is the
//! answerer's local address. After REDIRECT or DNAT it is the original destination, which connection tracking remembers. Two
//! ends are a pair if each one's remote address is the address under which the other is known:
//!
//! ```text
//! caller    local R, remote C                 answerer  remote R, called C (local C, or NAT from C)
//! ```
//!
//! Within one network namespace a tuple belongs to one connection at a time. So two ends that fit are a pair if both sockets
//! are alive at one moment. The caller of this module must check that between [`Matcher::candidates`] and [`Matcher::decide`].
//!
//! A living socket may have lost its translation since it was offered, so that its caller would reach another socket. So a
//! translated answerer that waits is never paired at once: it must be offered again, and then meets the waiting caller.
//!
//! An end that fits several others is not paired at all.

use crate::addr::Endpoint;
use crate::proof::{AddressSpace, SocketFacts};
use crate::trust::{Trust, Who};
use sidestep_abi::Reason;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Numbers that identify an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// Number of the member.
    pub member: u64,
    /// Number of the offer, chosen by the member.
    pub offer: u64,
}

/// An offer with its proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The offer's numbers.
    pub ticket: Ticket,
    /// What the offer's socket proves.
    pub facts: SocketFacts,
    /// The process at the moment of the offer.
    pub who: Who,
    /// Only paired with an offer that is not passive.
    pub passive: bool,
}

/// Result of a new offer.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The offer waits: the other end has not been offered yet.
    Waits,
    /// The new offer waits until these have been offered again. These no longer wait.
    Anew(Vec<Offer>),
    /// This offer is the other end. It no longer waits.
    Pair(Offer),
    /// This offer is the other end, and the users of the two may not share memory. It no longer waits.
    Strangers(Offer),
    /// The new offer is refused, and these with it. None of them waits any more.
    Refused(Reason, Vec<Ticket>),
}

/// The key of an end: its address space, the address by which it was called, and the other end's address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Tuple {
    space: AddressSpace,
    called: Endpoint,
    remote: Endpoint,
}

/// Offers that wait for their other end.
pub struct Matcher {
    trust: Trust,
    across_namespaces: bool,
    waiting: HashMap<Ticket, Offer>,
    by_tuple: HashMap<Tuple, Vec<Ticket>>,
    /// Keys without the address space; used only with `across_namespaces`.
    anywhere: HashMap<(Endpoint, Endpoint), Vec<Ticket>>,
    by_cookie: HashMap<u64, Ticket>,
    by_member: HashMap<u64, HashSet<u64>>,
}

impl SocketFacts {
    /// For an answerer: the address that the caller used. For a caller: its own address.
    fn called(&self) -> Endpoint {
        // For a caller, connection tracking names the remote address.
        self.original.filter(|&original| original != self.remote).unwrap_or(self.local)
    }

    fn is_translated(&self) -> bool {
        self.called() != self.local
    }

    fn tuple(&self) -> Tuple {
        Tuple { space: self.space, called: self.called(), remote: self.remote }
    }

    /// The key of the other end.
    fn mirror(&self) -> Tuple {
        Tuple { space: self.space, called: self.remote, remote: self.called() }
    }

    /// Whether the addresses may mean the same in another network namespace. (A socket connected to itself has no other end.)
    fn may_cross(&self) -> bool {
        let has_end = self.local != self.remote && !self.is_translated();
        has_end && self.space.pod.is_none() && !self.local.is_loopback() && !self.remote.is_loopback()
    }
}

impl Matcher {
    /// `across_namespaces`: an address means the same in every network namespace of this host.
    pub fn new(trust: Trust, across_namespaces: bool) -> Matcher {
        Matcher {
            trust,
            across_namespaces,
            waiting: HashMap::new(),
            by_tuple: HashMap::new(),
            anywhere: HashMap::new(),
            by_cookie: HashMap::new(),
            by_member: HashMap::new(),
        }
    }

    /// How many offers wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no offer waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether this offer waits.
    pub fn contains(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }

    /// How many offers of this member wait.
    pub fn waiting_of(&self, member: u64) -> usize {
        self.by_member.get(&member).map_or(0, HashSet::len)
    }

    /// Every offer that waits.
    pub fn all_waiting(&self) -> impl Iterator<Item = &Offer> {
        self.waiting.values()
    }

    /// The offer, if it waits.
    pub fn waiting(&self, ticket: Ticket) -> Option<&Offer> {
        self.waiting.get(&ticket)
    }

    /// Replaces the rules of who may share memory.
    pub fn set_trust(&mut self, trust: Trust) {
        self.trust = trust;
    }

    /// Looks for the other end, taking every waiting socket as alive. If there is none the offer waits.
    pub fn offer(&mut self, new: Offer) -> Verdict {
        if let Some(refused) = self.same_socket(&new) {
            return refused;
        }
        let alive = self.candidates(&new);
        self.decide(new, &alive)
    }

    /// The verdict if the socket of the new offer waits already. None: it does not.
    pub fn same_socket(&mut self, new: &Offer) -> Option<Verdict> {
        let holder = *self.by_cookie.get(&new.facts.cookie)?;
        if holder.member == new.ticket.member {
            return Some(Verdict::Refused(Reason::Dup, Vec::new()));
        }
        Some(self.refuse(Reason::Shared, vec![holder]))
    }

    /// Waiting offers whose sockets must be gone, since another socket has the same addresses now.
    pub fn superseded_by(&self, facts: &SocketFacts) -> Vec<Ticket> {
        let alike = self.by_tuple.get(&facts.tuple()).into_iter().flatten();
        let is_gone = |t: &&Ticket| {
            self.waiting.get(t).is_some_and(|o| o.facts.local == facts.local && o.facts.cookie != facts.cookie)
        };
        alike.filter(is_gone).copied().collect()
    }

    /// Whether the new offer or one of the others is not passive. Passive offers only wait beside each other.
    pub fn is_asked_for(&self, new: &Offer, others: &[Ticket]) -> bool {
        !new.passive || others.iter().any(|other| self.waiting.get(other).is_some_and(|offer| !offer.passive))
    }

    /// A waiting offer is passive no more. Some: others fit, so it must be offered again, and no longer waits.
    pub fn press(&mut self, ticket: Ticket) -> Option<Offer> {
        let offer = self.waiting.get_mut(&ticket)?;
        offer.passive = false;
        let offer = offer.clone();
        if self.candidates(&offer).is_empty() { None } else { self.withdraw(ticket) }
    }

    /// The verdict for a new offer. `alive`: waiting offers whose sockets were found; others do not count.
    pub fn decide(&mut self, new: Offer, alive: &[Ticket]) -> Verdict {
        let mut fitting = self.candidates(&new);
        fitting.retain(|ticket| alive.contains(ticket));
        match fitting[..] {
            [] => {
                self.insert(new);
                Verdict::Waits
            }
            _ if fitting.iter().all(|ticket| self.is_translated(ticket)) => {
                let anew = fitting.into_iter().filter_map(|ticket| self.withdraw(ticket)).collect();
                self.insert(new);
                Verdict::Anew(anew)
            }
            [one] => self.the_only(new, one),
            _ => self.refuse(Reason::Ambiguous, fitting),
        }
    }

    /// The offer no longer waits. None: it did not wait.
    pub fn withdraw(&mut self, ticket: Ticket) -> Option<Offer> {
        let offer = self.waiting.remove(&ticket)?;
        remove_from(&mut self.by_tuple, &offer.facts.tuple(), ticket);
        remove_from(&mut self.anywhere, &offer.facts.anywhere(), ticket);
        self.by_cookie.remove(&offer.facts.cookie);
        if let Some(offers) = self.by_member.get_mut(&ticket.member) {
            offers.remove(&ticket.offer);
            if offers.is_empty() {
                self.by_member.remove(&ticket.member);
            }
        }
        Some(offer)
    }

    /// Withdraws all offers of a member, and returns them.
    pub fn remove_member(&mut self, member: u64) -> Vec<Ticket> {
        let offers = self.by_member.remove(&member).unwrap_or_default();
        offers.into_iter().filter_map(|offer| self.withdraw(Ticket { member, offer })).map(|o| o.ticket).collect()
    }

    fn refuse(&mut self, reason: Reason, others: Vec<Ticket>) -> Verdict {
        for &other in &others {
            self.withdraw(other);
        }
        Verdict::Refused(reason, others)
    }

    fn the_only(&mut self, new: Offer, other: Ticket) -> Verdict {
        let Some(found) = self.withdraw(other) else {
            return Verdict::Waits;
        };
        let is_proved = new.facts.space.pod.is_none() || self.trust.are_of_one_pod(&new.who, &found.who);
        if is_proved && self.trust.may_share(&new.who, &found.who) {
            Verdict::Pair(found)
        } else {
            Verdict::Strangers(found)
        }
    }

    /// Waiting offers that may be the other end of `new`.
    pub fn candidates(&self, new: &Offer) -> Vec<Ticket> {
        let near = self.by_tuple.get(&new.facts.mirror()).cloned().unwrap_or_default();
        // Two translated ends are both answerers, and cannot be a pair.
        let near: Vec<_> = near.into_iter().filter(|t| !(new.facts.is_translated() && self.is_translated(t))).collect();
        if near.is_empty() && self.across_namespaces && new.facts.may_cross() { self.far(new) } else { near }
    }

    fn is_translated(&self, ticket: &Ticket) -> bool {
        self.waiting.get(ticket).is_some_and(|offer| offer.facts.is_translated())
    }

    /// Candidates in other network namespaces. If an offer with the addresses of `new` itself waits elsewhere, addresses repeat
    /// on this host: then that offer counts as a candidate, too, which makes the result ambiguous.
    fn far(&self, new: &Offer) -> Vec<Ticket> {
        let elsewhere = |key| {
            let tickets = self.anywhere.get(&key).into_iter().flatten().copied();
            tickets.filter(|t| self.waiting.get(t).is_some_and(|o| o.facts.space.netns != new.facts.space.netns))
        };
        let (called, remote) = new.facts.anywhere();
        let mut fitting: Vec<_> = elsewhere((remote, called)).collect();
        if !fitting.is_empty() {
            fitting.extend(elsewhere((called, remote)));
        }
        fitting
    }

    fn insert(&mut self, offer: Offer) {
        let Offer { ticket, facts, .. } = offer;
        self.by_tuple.entry(facts.tuple()).or_default().push(ticket);
        if self.across_namespaces && facts.may_cross() {
            self.anywhere.entry(facts.anywhere()).or_default().push(ticket);
        }
        self.by_cookie.insert(facts.cookie, ticket);
        self.by_member.entry(ticket.member).or_default().insert(ticket.offer);
        self.waiting.insert(ticket, offer);
    }
}

impl SocketFacts {
    fn anywhere(&self) -> (Endpoint, Endpoint) {
        (self.called(), self.remote)
    }
}

fn remove_from<K: Hash + Eq>(index: &mut HashMap<K, Vec<Ticket>>, key: &K, ticket: Ticket) {
    if let Some(tickets) = index.get_mut(key) {
        tickets.retain(|&t| t != ticket);
        if tickets.is_empty() {
            index.remove(key);
        }
    }
}
