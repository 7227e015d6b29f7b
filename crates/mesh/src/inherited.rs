//! What an earlier life of the agent had programmed. It goes on being used until what is wanted now has replaced it.

use crate::address::Endpoint;
use crate::backends::{Backends, Heirloom};
use crate::plane::{Existing, Frontend, FrontendKey, Member};
use crate::ranges::{Numbers, Ranges};
use std::collections::{BTreeSet, HashMap, HashSet};

#[derive(Debug, Default)]
pub struct Inherited {
    /// Those that are still as it has left them.
    pub frontends: HashMap<FrontendKey, Frontend>,
    pub ranges: HashSet<(u32, u32)>,
    pub backends: Vec<Endpoint>,
    /// Second numbers of backends.
    pub doubles: Vec<u32>,
    pub members: BTreeSet<Member>,
    /// Numbers that no Service of today has taken over yet.
    pub services: HashSet<u32>,
}

impl Inherited {
    /// Takes the room that is in use, so that nobody is given it.
    pub fn claim(
        existing: Existing,
        ranges: &mut Ranges,
        backends: &mut Backends,
        services: &mut Numbers,
    ) -> Inherited {
        let mut inherited = Inherited { members: existing.members.into_iter().collect(), ..Inherited::default() };
        for (number, endpoint) in existing.backends {
            match backends.inherit(number, endpoint) {
                Heirloom::Known => inherited.backends.push(endpoint),
                Heirloom::Double => inherited.doubles.push(number),
                Heirloom::Refused => {}
            }
        }
        for (key, frontend) in existing.frontends {
            let range = (frontend.first, frontend.count);
            if frontend.count > 0 && !inherited.ranges.contains(&range) && ranges.claim_at(range.0, range.1) {
                inherited.ranges.insert(range);
            }
            if services.claim_at(frontend.service) {
                inherited.services.insert(frontend.service);
            }
            inherited.frontends.insert(key, frontend);
        }
        inherited
    }

    /// The number that the Service behind this frontend had, for the first who asks: its counters and affinities go on.
    pub fn service(&mut self, frontends: impl Iterator<Item = FrontendKey>) -> Option<u32> {
        let mut numbers = frontends.filter_map(|key| self.frontends.get(&key).map(|frontend| frontend.service));
        let number = numbers.find(|number| self.services.contains(number))?;
        self.services.remove(&number);
        Some(number)
    }

    /// Whether connections to this frontend reach somebody as the earlier life has left it.
    pub fn serves(&self, frontend: &FrontendKey) -> bool {
        self.frontends.get(frontend).is_some_and(|found| found.count > 0)
    }

    /// The members of a Service, which are somebody else's affair from now on.
    pub fn claim_members(&mut self, service: u32) -> BTreeSet<Member> {
        let theirs = Member { service, backend: 0 }..=Member { service, backend: u32::MAX };
        let taken: BTreeSet<Member> = self.members.range(theirs).copied().collect();
        for member in &taken {
            self.members.remove(member);
        }
        taken
    }
}
