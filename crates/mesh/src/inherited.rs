//! What an earlier life of the agent had programmed. It goes on being used until what is wanted now has replaced it.

use crate::address::Endpoint;
use crate::backends::Backends;
use crate::plane::{Existing, FrontendKey, Member};
use crate::ranges::{Numbers, Ranges};
use std::collections::{BTreeSet, HashMap, HashSet};

#[derive(Debug, Default)]
pub struct Inherited {
    /// Frontend -> number of its Service.
    pub frontends: HashMap<FrontendKey, u32>,
    pub ranges: HashSet<(u32, u32)>,
    pub backends: Vec<Endpoint>,
    pub members: BTreeSet<Member>,
    /// Numbers that no Service of today has taken over yet.
    pub services: HashSet<u32>,
}

impl Inherited {
    /// Takes the room that is in use, so that nobody is given it.
    pub fn take(existing: Existing, ranges: &mut Ranges, backends: &mut Backends, services: &mut Numbers) -> Inherited {
        let mut inherited = Inherited { members: existing.members.into_iter().collect(), ..Inherited::default() };
        for (number, endpoint) in existing.backends {
            if backends.inherit(number, endpoint) {
                inherited.backends.push(endpoint);
            }
        }
        for (key, frontend) in existing.frontends {
            let range = (frontend.first, frontend.count);
            if frontend.count > 0 && !inherited.ranges.contains(&range) && ranges.take_at(range.0, range.1) {
                inherited.ranges.insert(range);
            }
            if services.take_at(frontend.service) {
                inherited.services.insert(frontend.service);
            }
            inherited.frontends.insert(key, frontend.service);
        }
        inherited
    }

    /// The number that the Service behind this frontend had, for the first who asks: its counters and affinities go on.
    pub fn service(&mut self, frontends: impl Iterator<Item = FrontendKey>) -> Option<u32> {
        let mut numbers = frontends.filter_map(|key| self.frontends.get(&key).copied());
        let number = numbers.find(|number| self.services.contains(number))?;
        self.services.remove(&number);
        Some(number)
    }
}
