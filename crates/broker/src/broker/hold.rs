//! Detach and attach: the operator keeps connections on the kernel.

use super::Broker;
use crate::link::{Connection, Link};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_ring::page;
use std::collections::BTreeSet;

/// The connections that a detach or attach concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every connection.
    All,
    /// Those of the process with this process id.
    Process(u32),
    /// One connection.
    Connection {
        /// Number of its link.
        link: u32,
        /// Its slot there.
        slot: u32,
    },
}

impl Scope {
    /// The scope of a request. None: unknown to this version.
    pub fn from_msg(msg: &Msg) -> Option<Scope> {
        match msg.arg {
            0 => Some(Scope::All),
            1 => u32::try_from(msg.arg2).ok().map(Scope::Process),
            2 => Some(Scope::Connection { link: msg.link, slot: msg.slot }),
            _ => None,
        }
    }

    /// A request of this kind with this scope.
    pub fn to_msg(self, kind: Kind) -> Msg {
        let msg = Msg::new(kind);
        match self {
            Scope::All => msg,
            Scope::Process(pid) => Msg { arg: 1, arg2: u64::from(pid), ..msg },
            Scope::Connection { link, slot } => Msg { arg: 2, link, slot, ..msg },
        }
    }
}

impl Broker {
    /// Answers a detach (`hold`) or an attach.
    pub(super) fn set_hold(&mut self, id: u64, msg: &Msg, hold: bool) {
        let Some(scope) = Scope::from_msg(msg) else {
            return self.violation(id);
        };
        let answer = match self.concerned(scope, hold) {
            Some(slots) => {
                let count = slots.len() as u64;
                for (link, slot) in slots {
                    self.hold_slot(link, slot);
                }
                Msg { arg: count, ..Msg::new(Kind::Done) }
            }
            None => Msg::new(Kind::Unknown),
        };
        self.any_hold = self.holds_anything();
        self.queue(id, answer, None);
    }

    /// Stores the operator's request. Returns the connections that it concerns; None: there is no such process or connection.
    fn concerned(&mut self, scope: Scope, hold: bool) -> Option<BTreeSet<(u32, usize)>> {
        let members: Vec<u64> = match scope {
            Scope::All => {
                self.hold_all = hold;
                self.member_ids().collect()
            }
            // Members whose process id is not visible from here all have 0.
            Scope::Process(0) => Vec::new(),
            Scope::Process(pid) => {
                self.member_ids().filter(|&m| self.member(m).is_some_and(|m| m.pid == pid)).collect()
            }
            Scope::Connection { link, slot } => {
                self.links.get_mut(&link)?.connection_mut(slot as usize)?.hold = hold;
                return Some(BTreeSet::from([(link, slot as usize)]));
            }
        };
        if members.is_empty() && scope != Scope::All {
            return None;
        }
        let mut slots = BTreeSet::new();
        for member in members {
            slots.extend(self.hold_member(member, hold));
        }
        Some(slots)
    }

    fn member_ids(&self) -> impl Iterator<Item = u64> {
        self.conns.keys().copied().filter(|&id| self.member(id).is_some())
    }

    fn hold_member(&mut self, id: u64, hold: bool) -> Vec<(u32, usize)> {
        let Some(member) = self.member_mut(id) else {
            return Vec::new();
        };
        member.hold = hold;
        page::set_hold(member.page.get(), hold);
        page::announce(member.page.get());
        // The process itself holds connections that earlier brokers have paired. This broker does not know which of its threads
        // wait for them, and wakes all.
        member.doorbells.keys().for_each(|&place| member.ring(place));
        let links = member.links.clone();
        let mut slots = Vec::new();
        for link in links {
            let Some(link) = self.links.get_mut(&link) else {
                continue;
            };
            for slot in link.slots() {
                slots.push((link.id, slot));
                if let Some(connection) = link.connection_mut(slot).filter(|_| !hold) {
                    connection.hold = false;
                }
            }
        }
        slots
    }

    fn hold_slot(&mut self, link: u32, slot: usize) {
        self.apply_hold(link, slot);
        self.hint_and_wake(link, slot);
    }

    /// Makes both ends look at the hold of this connection. Writers that are held end their stretches of ring.
    fn hint_and_wake(&mut self, link: u32, slot: usize) {
        if let Some(link) = self.links.get(&link) {
            link.hint(slot);
        }
        self.wake(link, slot, 0);
        self.wake(link, slot, 1);
    }

    /// The operator has changed who may share memory: connections between two users are held from now on, or are free again.
    pub(super) fn obey_trust(&mut self) {
        let between_users = |c: &Connection| c.whos[0].uid != c.whos[1].uid;
        let slots_of = |link: &Link| -> Vec<_> {
            link.connections().filter(|(_, c)| between_users(c)).map(|(slot, _)| (link.id, slot)).collect()
        };
        let concerned: Vec<_> = self.links.values().flat_map(slots_of).collect();
        concerned.into_iter().for_each(|(link, slot)| self.hold_slot(link, slot));
        self.any_hold = self.holds_anything();
    }

    /// Whether the ends of the connection may not share memory, or not any more.
    pub(super) fn is_forbidden(&self, connection: &Connection) -> bool {
        let [a, b] = &connection.whos;
        !self.settings.trust.may_share(a, b)
    }

    fn holds_anything(&self) -> bool {
        self.hold_all
            || self.member_ids().any(|id| self.member(id).is_some_and(|m| m.hold))
            || self.links.values().any(|link| link.connections().any(|(_, c)| c.hold || self.is_forbidden(c)))
    }

    /// Hints again at connections that are held and still by ring: a member may have been on its way into a wait, or its doorbell
    /// may not have been known. And sends what the kernel did not take.
    pub fn sweep(&mut self) {
        self.dirty.append(&mut self.starved);
        if !self.any_hold {
            return;
        }
        let all: Vec<_> = self.links.values().flat_map(|l| l.slots().into_iter().map(|slot| (l.id, slot))).collect();
        for (link, slot) in all {
            if self.apply_hold(link, slot) && self.links.get(&link).is_some_and(|l| l.is_by_ring(slot)) {
                self.hint_and_wake(link, slot);
            }
        }
        self.any_hold = self.holds_anything();
    }
}
