//! What an earlier process of the agent has programmed. It stays in force until the present objects have replaced it.

use crate::address::Endpoint;
use crate::backends::{Backends, Heirloom};
use crate::plane::{Existing, Frontend, FrontendKey, Member, Source};
use crate::ranges::{Numbers, Ranges};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Entries that no present object uses yet. What remains when all objects are known is removed.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Frontends that are still as the earlier process left them.
    pub frontends: HashMap<FrontendKey, Frontend>,
    /// First element and length of each range of slots that these frontends refer to.
    pub ranges: HashSet<(u32, u32)>,
    /// Endpoints that got their number from the earlier process, each with one user: this inheritance.
    pub backends: Vec<Endpoint>,
    /// Second numbers of backends that have two, and numbers of backends of which only members are left.
    pub doubles: Vec<u32>,
    /// Members of Services that have not been programmed since.
    pub members: BTreeSet<Member>,
    /// Sources, as `members`.
    pub sources: BTreeSet<Source>,
    /// Numbers that no present Service has taken over yet.
    pub services: HashSet<u32>,
}

impl Inherited {
    /// Marks what is in use as taken, so that it is not given out.
    pub fn claim(
        existing: Existing,
        ranges: &mut Ranges,
        backends: &mut Backends,
        services: &mut Numbers,
    ) -> Inherited {
        let (members, sources) = (existing.members.into_iter().collect(), existing.sources.into_iter().collect());
        let mut inherited = Inherited { members, sources, ..Inherited::default() };
        for (number, endpoint) in existing.backends {
            match backends.inherit(number, endpoint) {
                Heirloom::Known => inherited.backends.push(endpoint),
                Heirloom::Double => inherited.doubles.push(number),
                Heirloom::Refused => {}
            }
        }
        // An earlier process that was killed may have left a member whose backend no list contains any more. Another endpoint with
        // the member's number would get the clients of the member's Service.
        for member in &inherited.members {
            if backends.reserve(member.backend) {
                inherited.doubles.push(member.backend);
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

    /// The number of the Service that had one of these frontends, for the first caller: counters and affinities then continue.
    pub fn service(&mut self, frontends: impl Iterator<Item = FrontendKey>) -> Option<u32> {
        let mut numbers = frontends.filter_map(|key| self.frontends.get(&key).map(|frontend| frontend.service));
        let number = numbers.find(|number| self.services.contains(number))?;
        self.services.remove(&number);
        Some(number)
    }

    /// Whether the frontend, as the earlier process left it, has backends.
    pub fn serves(&self, frontend: &FrontendKey) -> bool {
        self.frontends.get(frontend).is_some_and(|found| found.count > 0)
    }

    /// Removes and returns the members of a Service, for which the caller is responsible from now on.
    pub fn claim_members(&mut self, service: u32) -> BTreeSet<Member> {
        let theirs = Member { service, backend: 0 }..=Member { service, backend: u32::MAX };
        let taken: BTreeSet<Member> = self.members.range(theirs).copied().collect();
        for member in &taken {
            self.members.remove(member);
        }
        taken
    }

    /// Removes and returns the sources of a Service, as `claim_members`.
    pub fn claim_sources(&mut self, service: u32) -> BTreeSet<Source> {
        self.sources.extract_if(.., |source| source.service == service).collect()
    }
}
