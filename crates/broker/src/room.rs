//! How much of one member's tables its peers may take.
//!
//! A process has a table of links and a table of descriptors, and its peers fill both: each link takes an entry of the first,
//! and each doorbell of a peer a descriptor. Also, the memory of a ring that the member has written is not free before the peer
//! has released the slot. So the peers of one foreign domain may take more of each only as long as they leave enough for others
//! ([`quota`](crate::quota)). Peers of the member's own domain may take all that is left: they can harm it in other ways
//! anyway.

use crate::domain::Scope;
use crate::quota::{Account, Budget, Permit};
use sidestep_abi::link::LINKS;
use std::collections::HashMap;
use std::sync::Arc;

/// Descriptors for doorbells of peers, if the member does not say how many; and the most that count.
const FEWEST_BELLS: usize = 512;
const MOST_BELLS: usize = 65_536;
/// Bytes of rings that one side has released and the other has not.
const UNRELEASED: usize = 256 << 20;
/// Domains that are remembered although they hold nothing.
const FORMER: usize = 64;

pub struct Room {
    own: Scope,
    links: Arc<Budget>,
    bells: Arc<Budget>,
    unreleased: Arc<Budget>,
    peers: HashMap<Scope, Taken>,
}

/// What the peers of one domain have taken.
struct Taken {
    links: Arc<Account>,
    bells: Arc<Account>,
    unreleased: Arc<Account>,
}

impl Room {
    /// `bells`: descriptors that the member has for doorbells of its peers; 0: it does not say.
    pub fn new(own: Scope, bells: u64) -> Room {
        let bells = if bells == 0 { FEWEST_BELLS } else { (bells as usize).min(MOST_BELLS) };
        let [links, bells, unreleased] = [LINKS, bells, UNRELEASED].map(Budget::new);
        Room { own, links, bells, unreleased, peers: HashMap::new() }
    }

    /// An entry for a link with a peer of that domain. None: that domain has enough of them.
    pub fn link(&mut self, peer: Scope) -> Option<Permit> {
        self.claim(peer, |taken| &taken.links)
    }

    /// A descriptor for a doorbell of a peer of that domain.
    pub fn doorbell(&mut self, peer: Scope) -> Option<Permit> {
        self.claim(peer, |taken| &taken.bells)
    }

    /// Whether one more ring may be shared with a peer of that domain, given the rings that its peers have not released.
    pub fn may_share(&mut self, peer: Scope, ring_size: usize) -> bool {
        peer == self.own || self.of(peer).unreleased.claim(ring_size).is_some()
    }

    /// Counts a ring that the member has released and its peer has not. None: the peer is of the member's own domain.
    pub fn unreleased(&mut self, peer: Scope, ring_size: usize) -> Option<Permit> {
        (peer != self.own).then(|| self.of(peer).unreleased.owe(ring_size))
    }

    fn claim(&mut self, peer: Scope, what: fn(&Taken) -> &Arc<Account>) -> Option<Permit> {
        let is_own = peer == self.own;
        let account = what(self.of(peer));
        if is_own { account.claim_rest(1) } else { account.claim(1) }
    }

    fn of(&mut self, peer: Scope) -> &Taken {
        if self.peers.len() >= FORMER {
            self.peers.retain(|_, taken| taken.links.held() + taken.bells.held() + taken.unreleased.held() > 0);
        }
        self.peers.entry(peer).or_insert_with(|| Taken {
            links: Account::new(&self.links),
            bells: Account::new(&self.bells),
            unreleased: Account::new(&self.unreleased),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Domain, NetNamespace};

    fn of_user(uid: u32) -> Scope {
        Scope::Domain(Domain::User { uid, netns: NetNamespace::Known(1) })
    }

    #[test]
    fn a_foreign_domain_leaves_something_and_the_own_one_need_not() {
        let mut room = Room::new(of_user(1), 0);
        let foreign: Vec<_> = std::iter::from_fn(|| room.link(of_user(2))).collect();
        assert_eq!(foreign.len(), 2 * LINKS / 3);
        let own: Vec<_> = std::iter::from_fn(|| room.link(of_user(1))).collect();
        assert_eq!(foreign.len() + own.len(), LINKS);
        assert!(room.link(of_user(3)).is_none());
        drop(own);
        assert!(room.link(of_user(3)).is_some() && room.link(of_user(2)).is_none());
    }

    #[test]
    fn what_a_peer_does_not_release_keeps_its_domain_from_more() {
        let mut room = Room::new(of_user(1), 0);
        let permits: Vec<_> = (0..12).map(|_| room.unreleased(of_user(2), 16 << 20)).collect();
        assert!(!room.may_share(of_user(2), 16 << 20) && room.may_share(of_user(3), 16 << 20));
        drop(permits);
        assert!(room.may_share(of_user(2), 16 << 20));
    }

    #[test]
    fn a_neighbour_releases_when_it_likes() {
        let mut room = Room::new(of_user(1), 0);
        let permits: Vec<_> = (0..1000).map(|_| room.unreleased(of_user(1), 16 << 20)).collect();
        assert!(room.may_share(of_user(1), 16 << 20) && permits.iter().all(Option::is_none));
    }

    #[test]
    fn domains_that_hold_nothing_are_forgotten() {
        let mut room = Room::new(of_user(1), 0);
        let permit = room.link(of_user(2));
        (0..10_000).for_each(|uid| drop(room.doorbell(of_user(uid))));
        assert!(room.peers.len() <= FORMER && room.peers.contains_key(&of_user(2)));
        drop(permit);
    }
}
