//! Plans the changes that bring a Service's ports into the wanted state. Nothing is written here.

use super::{Problem, Programmed, Reconciler, SlotRange};
use crate::address::{Endpoint, Protocol};
use crate::inherited::Inherited;
use crate::object::Name;
use crate::plane::{Frontend, FrontendKey, Member, Sizes, Source};
use crate::shares::Refused;
use crate::table::{Backend, PortKey, PortTable};
use crate::vose_alias;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

impl Reconciler {
    pub(super) fn plan(&mut self, name: &Name, wanted: Vec<PortTable>) {
        let before = self.ports.remove(name).into_iter().flatten();
        let mut before: HashMap<Arc<PortKey>, Programmed> = before.map(|port| (port.key.clone(), port)).collect();
        self.problems.remove(name);
        // Most Services have one table, and a vector that grows by itself has room for four.
        let mut ports: Vec<Programmed> = Vec::with_capacity(wanted.len());
        for table in wanted {
            let old = before.remove(&table.key);
            ports.extend(self.plan_port(table, old));
        }
        link_siblings(&mut ports);
        ports.iter().for_each(|port| self.plan_frontends(port));
        before.into_values().for_each(|port| self.retire(Some(port), None));
        if !ports.is_empty() {
            self.ports.insert(name.clone(), ports);
        }
    }

    /// Plans one port. Without room it is left to the kernel, or stays as an earlier process left it.
    fn plan_port(&mut self, table: PortTable, old: Option<Programmed>) -> Option<Programmed> {
        let key = Arc::new(table.key.clone());
        let frontends = table.frontends.clone();
        match self.build(key.clone(), table, old.as_ref()) {
            Ok(port) => {
                self.retire(old, Some(&port));
                Some(port)
            }
            Err(Full { what, of_namespace }) => {
                let is_left = |frontend: &FrontendKey| {
                    self.inherited.as_ref().is_some_and(|known| known.frontends.contains_key(frontend))
                };
                let mine = |frontend: &FrontendKey| self.claims.is_first(frontend, &key) && !is_left(frontend);
                let gone: Vec<FrontendKey> = frontends.into_iter().filter(mine).collect();
                gone.into_iter().for_each(|frontend| self.set_frontend(frontend, None));
                self.problem(key.service.clone(), Problem::Full { port: key, what, of_namespace });
                self.retire(old, None);
                None
            }
        }
    }

    /// Reserves room for everything that the port needs, or for nothing; the error names the kind that is full.
    fn build(&mut self, key: Arc<PortKey>, table: PortTable, old: Option<&Programmed>) -> Result<Programmed, Full> {
        self.check_shares(&table, old)?;
        self.hold(&table)?;
        let slots = self.slots(&table, old).inspect_err(|_| self.release(&table))?;
        let Some(service) = self.number(&table, old) else {
            self.release(&table);
            self.give(slots);
            return Err(Full::of_all("services"));
        };
        let members = self.members_of(&table, service);
        self.adopt_members(&table, service, &members);
        let sources = table.sources(service);
        self.adopt_sources(service, &sources);
        let tenant = &key.service.namespace;
        self.shares.frontends.take(tenant, table.frontends.len());
        self.shares.members.take(tenant, members.len());
        self.shares.sources.take(tenant, sources.len());
        self.pending.members.extend(members.iter().map(|member| (*member, true)));
        self.pending.sources.extend(sources.iter().map(|source| (*source, true)));
        Ok(Programmed { key, service, sibling: 0, table, slots, members, sources })
    }

    /// Checks what has no numbers of its own, and the port's number, before anything is reserved.
    fn check_shares(&self, table: &PortTable, old: Option<&Programmed>) -> Result<(), Full> {
        let tenant = &*table.key.service.namespace;
        let before = old.map_or([0; 3], |old| [old.table.frontends.len(), old.members.len(), old.sources.len()]);
        let members = if table.remembers() { table.kept().len() } else { 0 };
        let Sizes { frontends, sources, services, .. } = self.sizes;
        let frontends = self.shares.frontends.check(tenant, before[0], table.frontends.len(), frontends as usize);
        frontends.map_err(|why| Full::new("frontends", why))?;
        // During a change the old and the new members exist side by side.
        let members = self.shares.members.check(tenant, before[1], members, self.sizes.members as usize / 2);
        members.map_err(|why| Full::new("members", why))?;
        // So do the ranges. None of a Service's is left out, since whoever is in none may not use it.
        let sources = self.shares.sources.check(tenant, before[2], table.source_ranges.len(), sources as usize / 2);
        sources.map_err(|why| Full::new("sources", why))?;
        let more = usize::from(old.is_none());
        self.shares.services.check(tenant, more, services).map_err(|why| Full::new("services", why))
    }

    /// Adds a user to each of the port's backends.
    fn hold(&mut self, table: &PortTable) -> Result<(), Full> {
        let endpoints = table.kept();
        for (done, endpoint) in endpoints.iter().enumerate() {
            if let Err(full) = self.hold_one(endpoint, &table.key.service.namespace) {
                endpoints.iter().take(done).for_each(|held| self.release_one(held));
                return Err(full);
            }
        }
        Ok(())
    }

    fn hold_one(&mut self, endpoint: &Endpoint, tenant: &Arc<str>) -> Result<(), Full> {
        // One of an earlier process belongs to nobody yet.
        let is_new = self.backends.number(endpoint).is_none_or(|number| !self.shares.backends.has_owner(number));
        if is_new {
            let check = self.shares.backends.check(tenant, 1, self.sizes.backends);
            check.map_err(|why| Full::new("backends", why))?;
        }
        let numbered = self.backends.hold(*endpoint).ok_or(Full::of_all("backends"))?;
        if is_new {
            self.shares.backends.take(tenant, numbered.number, 1);
        }
        if numbered.fresh {
            self.pending.backends.push((numbered.number, *endpoint));
        }
        Ok(())
    }

    fn release(&mut self, table: &PortTable) {
        table.kept().iter().for_each(|endpoint| self.release_one(endpoint));
    }

    fn release_one(&mut self, endpoint: &Endpoint) {
        self.pending.replaced.backends.extend(self.backends.release(endpoint));
    }

    /// The range for the port's list: the old one if the list is the same.
    fn slots(&mut self, table: &PortTable, old: Option<&Programmed>) -> Result<SlotRange, Full> {
        if let Some(old) = old.filter(|old| old.table.list == table.list) {
            return Ok(old.slots);
        }
        let number = |backend: &Backend| Some((self.backends.number(&backend.endpoint)?, backend.weight));
        let slots = vose_alias::slots(&table.list.iter().filter_map(number).collect::<Vec<_>>());
        let count = slots.len() as u32;
        if count == 0 {
            return Ok(SlotRange::default());
        }
        let tenant = &table.key.service.namespace;
        let check = self.shares.slots.check(tenant, slots.len(), self.sizes.slots);
        check.map_err(|why| Full::new("slots", why))?;
        let first = self.ranges.claim(count).ok_or(Full::of_all("slots"))?;
        self.shares.slots.take(tenant, first, count);
        self.pending.slots.push((first, slots));
        Ok(SlotRange { first, count })
    }

    /// Frees a range that no program has ever read.
    fn give(&mut self, slots: SlotRange) {
        if slots.count > 0 {
            self.ranges.give(slots.first, slots.count);
            self.shares.slots.give(slots.first, slots.count);
            self.pending.slots.retain(|(first, _)| *first != slots.first);
        }
    }

    /// The port's number for counters: the one that it had, in this process or an earlier one.
    fn number(&mut self, table: &PortTable, old: Option<&Programmed>) -> Option<u32> {
        if let Some(old) = old {
            return Some(old.service);
        }
        let frontends = table.frontends.iter().copied();
        let number = match self.inherited.as_mut().and_then(|inherited| inherited.service(frontends)) {
            Some(number) => number,
            None => {
                let number = self.services.claim()?;
                self.pending.services.push(number);
                number
            }
        };
        self.shares.services.take(&table.key.service.namespace, number, 1);
        Some(number)
    }

    /// Members exist only where a choice is remembered.
    fn members_of(&self, table: &PortTable, service: u32) -> BTreeSet<Member> {
        if !table.remembers() {
            return BTreeSet::new();
        }
        let numbers = table.kept().into_iter().filter_map(|endpoint| self.backends.number(&endpoint));
        numbers.map(|backend| Member { service, backend }).collect()
    }

    /// Members of an earlier process that are no longer wanted are removed at once, unless the new list is empty: then perhaps
    /// the endpoints could not be read.
    fn adopt_members(&mut self, table: &PortTable, service: u32, members: &BTreeSet<Member>) {
        let Some(inherited) = self.inherited.as_mut().filter(|_| !table.list.is_empty()) else { return };
        let lost: Vec<Member> = inherited.claim_members(service).difference(members).copied().collect();
        self.lost_udp |= table.key.protocol == Protocol::Udp && !lost.is_empty();
        self.pending.members.extend(lost.into_iter().map(|member| (member, false)));
    }

    /// Sources of an earlier process that are no longer wanted are removed at once.
    fn adopt_sources(&mut self, service: u32, sources: &BTreeSet<Source>) {
        let Some(inherited) = self.inherited.as_mut() else { return };
        let lost = inherited.claim_sources(service);
        self.pending.sources.extend(lost.difference(sources).map(|source| (*source, false)));
    }

    /// Before everything is known, a frontend without backends does not replace an earlier process's frontend that has some.
    fn plan_frontends(&mut self, port: &Programmed) {
        for (frontend, value) in port.frontends() {
            let is_left = value.count == 0 && self.inherited.as_ref().is_some_and(|known| known.serves(&frontend));
            match self.claims.owner(&frontend).cloned() {
                Some(owner) if owner == port.key && is_left => {}
                Some(owner) if owner == port.key => self.set_frontend(frontend, Some(value)),
                Some(owner) => {
                    // At its cluster IP the owner has no frontend for packets, so it does not replace this one.
                    if self.claims.is_first(&frontend, &port.key) {
                        self.set_frontend(frontend, None);
                    }
                    self.problem(port.key.service.clone(), Problem::Taken { frontend, owner });
                }
                None => {}
            }
        }
    }

    /// Sets a frontend, which from now on is this process's, whatever an earlier one left there.
    pub(super) fn set_frontend(&mut self, frontend: FrontendKey, value: Option<Frontend>) {
        self.pending.frontends.insert(frontend, value);
        if let Some(inherited) = &mut self.inherited {
            inherited.frontends.remove(&frontend);
        }
    }

    /// Retires what the old port had and the new one does not use; it is freed later.
    fn retire(&mut self, old: Option<Programmed>, new: Option<&Programmed>) {
        let Some(old) = old else { return };
        self.release(&old.table);
        let is_kept = new.is_some_and(|new| new.slots == old.slots);
        let range = Some(old.slots).filter(|slots| slots.count > 0 && !is_kept);
        self.pending.replaced.ranges.extend(range.map(|slots| (slots.first, slots.count)));
        if new.is_none() {
            self.pending.replaced.services.push(old.service);
        }
        let (none, nowhere) = (BTreeSet::new(), BTreeSet::new());
        let barred = old.sources.difference(new.map_or(&nowhere, |new| &new.sources));
        self.pending.sources.extend(barred.map(|source| (*source, false)));
        let lost: Vec<_> = old.members.difference(new.map_or(&none, |new| &new.members)).collect();
        let tenant = &old.key.service.namespace;
        self.shares.frontends.give(tenant, old.table.frontends.len());
        self.shares.members.give(tenant, old.members.len());
        self.shares.sources.give(tenant, old.sources.len());
        self.lost_udp |= old.key.protocol == Protocol::Udp && !lost.is_empty();
        self.pending.members.extend(lost.into_iter().map(|member| (*member, false)));
    }

    /// Removes what is left of an earlier process, and lets frontends without backends replace its frontends.
    pub(super) fn disinherit(&mut self, inherited: Inherited) {
        let is_programmed = |frontend: &FrontendKey| {
            let owner = self.claims.owner(frontend).filter(|owner| self.claims.is_first(frontend, owner));
            owner.is_some_and(|owner| self.ports_of(&owner.service).iter().any(|p| p.key == *owner))
        };
        let unwanted: Vec<_> =
            inherited.frontends.keys().filter(|frontend| !is_programmed(frontend)).copied().collect();
        let all =
            self.ports.values().flatten().flat_map(|port| port.frontends().map(move |(key, value)| (port, key, value)));
        let emptied = all.filter(|(port, key, value)| {
            value.count == 0 && inherited.serves(key) && self.claims.owner(key) == Some(&port.key)
        });
        let emptied: Vec<_> = emptied.map(|(_, key, value)| (key, Some(value))).collect();
        self.pending.frontends.extend(unwanted.into_iter().map(|frontend| (frontend, None)).chain(emptied));
        inherited.backends.iter().for_each(|endpoint| self.release_one(endpoint));
        let replaced = &mut self.pending.replaced;
        replaced.backends.extend(inherited.doubles);
        replaced.ranges.extend(inherited.ranges);
        replaced.services.extend(inherited.services);
        let wanted: BTreeSet<&Member> = self.ports.values().flatten().flat_map(|port| &port.members).collect();
        let lost: Vec<_> = inherited.members.iter().filter(|member| !wanted.contains(member)).collect();
        self.lost_udp |= !lost.is_empty();
        self.pending.members.extend(lost.into_iter().map(|member| (*member, false)));
        let wanted: BTreeSet<&Source> = self.ports.values().flatten().flat_map(|port| &port.sources).collect();
        let barred = inherited.sources.iter().filter(|source| !wanted.contains(source));
        self.pending.sources.extend(barred.map(|source| (*source, false)));
    }

    fn problem(&mut self, service: Name, problem: Problem) {
        self.problems.entry(service).or_default().push(problem);
    }
}

/// Makes the two traffic policies of a port refer to each other.
fn link_siblings(ports: &mut [Programmed]) {
    let numbers: Vec<_> = ports.iter().map(|port| (port.key.clone(), port.service)).collect();
    for port in ports {
        let sibling = numbers.iter().find(|(key, _)| key.is_sibling(&port.key));
        port.sibling = sibling.map_or(0, |(_, service)| *service);
    }
}

/// The kind of entry for which there is no room.
struct Full {
    what: &'static str,
    of_namespace: bool,
}

impl Full {
    fn new(what: &'static str, why: Refused) -> Full {
        Full { what, of_namespace: why != Refused::Full }
    }

    fn of_all(what: &'static str) -> Full {
        Full::new(what, Refused::Full)
    }
}
