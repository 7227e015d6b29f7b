//! Doorbells of members, and the eventfds with which others ring them. A call on a doorbell may block: its owner may hold the
//! epoll mutex.
//!
//! The peer that rings with an eventfd must not close it while it is in a doorbell, since that close would wait for the same
//! mutex. So each eventfd is also kept here, and removed from its doorbell before it is released. It is not closed here either,
//! since it may be in an epoll set of the peer's. The receiver of the peer's domain closes it.

use super::message::{Event, Ringing};
use crate::counted::Counted;
use crate::quota::Account;
use crate::wire::Record;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{self, Errno};
use sidestep_abi::link::PLACES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One eventfd in the doorbell of (member, place).
type Rung = ((u64, usize), Arc<Counted>);

pub struct Rings {
    account: Arc<Account>,
    /// By member and place.
    doorbells: BTreeMap<(u64, usize), Counted>,
    /// By link and ringing side.
    ringers: BTreeMap<(u32, usize), Vec<Rung>>,
    /// Number of eventfds in the doorbells of each member.
    rung: BTreeMap<u64, usize>,
    /// Members that are gone. Their doorbells stay as long as eventfds are in them.
    gone: BTreeSet<u64>,
}

impl Rings {
    pub fn new(account: Arc<Account>) -> Rings {
        Rings {
            account,
            doorbells: BTreeMap::new(),
            ringers: BTreeMap::new(),
            rung: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.doorbells.is_empty() && self.ringers.is_empty()
    }

    /// A member's new doorbell. None: there is no room for it, or the member has one at that place. Then nobody rings it, and
    /// its waits look every millisecond.
    pub fn doorbell(&mut self, id: u64, record: Record) -> Option<Event> {
        let place = record.msg.place as usize;
        let violation = Some(Event::Doorbell { id, place, own: None });
        let Some(fd) = record.fd else {
            return violation.filter(|_| !record.fd_lost);
        };
        if place >= PLACES {
            return violation;
        }
        let doorbell = Counted::new(fd, &self.account).filter(|_| !self.doorbells.contains_key(&(id, place)))?;
        match self.add_to(&doorbell) {
            Ok(own) => {
                self.doorbells.insert((id, place), doorbell);
                Some(Event::Doorbell { id, place, own: Some(own) })
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSPC) => None,
            // The descriptor is no epoll instance.
            Err(_) => violation,
        }
    }

    /// Makes an eventfd for a doorbell. None: there is no such doorbell, or no room.
    pub fn ringer(&mut self, ringing: Ringing) -> Option<Arc<Counted>> {
        let doorbell = self.doorbells.get(&(ringing.owner, ringing.place))?;
        let ringer = self.add_to(doorbell).ok()?;
        let of_side = self.ringers.entry((ringing.link, ringing.side)).or_default();
        of_side.push(((ringing.owner, ringing.place), ringer.clone()));
        *self.rung.entry(ringing.owner).or_default() += 1;
        Some(ringer)
    }

    fn add_to(&self, doorbell: &Counted) -> io::Result<Arc<Counted>> {
        let permit = self.account.claim(1).ok_or(Errno::MFILE)?;
        let ringer = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        epoll::add(doorbell, &ringer, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
        Ok(Arc::new(Counted::with(ringer, permit)))
    }

    /// Returns the eventfds with which that side of the link rang, to be closed elsewhere. If they are removed from the
    /// doorbells first, the peer can close its own descriptors of them without waiting.
    #[must_use]
    pub fn unring(&mut self, link: u32, side: usize, takes_out: bool) -> Vec<Arc<Counted>> {
        let rung = self.ringers.remove(&(link, side)).unwrap_or_default();
        for (at, ringer) in &rung {
            if let Some(doorbell) = self.doorbells.get(at).filter(|_| takes_out) {
                let _ = epoll::delete(doorbell, &**ringer); // the owner may have closed the doorbell
            }
            self.remove_one(at.0);
        }
        rung.into_iter().map(|(_, ringer)| ringer).collect()
    }

    /// An eventfd has left the doorbells of this member.
    fn remove_one(&mut self, owner: u64) {
        let left = self.rung.get(&owner).map_or(0, |count| count - 1);
        if left > 0 {
            self.rung.insert(owner, left);
            return;
        }
        self.rung.remove(&owner);
        if self.gone.remove(&owner) {
            self.drop_doorbells(owner);
        }
    }

    /// The member is gone.
    pub fn dismiss(&mut self, id: u64) {
        if self.rung.contains_key(&id) {
            self.gone.insert(id);
        } else {
            self.drop_doorbells(id);
        }
    }

    fn drop_doorbells(&mut self, id: u64) {
        let theirs: Vec<_> = self.doorbells.range((id, 0)..=(id, usize::MAX)).map(|(at, _)| *at).collect();
        theirs.into_iter().for_each(|at| drop(self.doorbells.remove(&at)));
    }
}
