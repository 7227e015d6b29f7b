//! Makes the data plane say what the Services want, one Service at a time.
//!
//! Order of publication: backends, members and slots of the new list, then the frontends, which change at once; what
//! only the old list used is given back when no program can still be reading it. So no frontend ever leads to
//! something that is not there.

use crate::address::{Endpoint, Protocol};
use crate::alias;
use crate::backends::Backends;
use crate::choose::Node;
use crate::claims::{Claim, Claims};
use crate::inherited::Inherited;
use crate::object::{Name, Selection};
use crate::pending::Pending;
use crate::plane::{DataPlane, Frontend, FrontendKey, Member, Sizes};
use crate::ranges::{Numbers, Ranges};
use crate::retired::Retired;
use crate::state::State;
use crate::table::{self, Backend, PortKey, PortTable};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

/// What the data plane has been told, and what of its room is taken.
pub struct Reconciler {
    node: Node,
    sizes: Sizes,
    ranges: Ranges,
    backends: Backends,
    services: Numbers,
    claims: Claims,
    ports: HashMap<Name, Vec<Programmed>>,
    problems: BTreeMap<Name, Vec<Problem>>,
    inherited: Option<Inherited>,
    /// Of all ports.
    frontends: u32,
    members: u32,
    /// Something has been given back since the last change.
    room: bool,
    pending: Pending,
    lost_udp: bool,
    retired: Retired,
}

/// One port of a Service, as it stands in the maps.
#[derive(Clone, Debug)]
pub struct Programmed {
    pub key: Arc<PortKey>,
    /// Index of its counters.
    pub service: u32,
    /// Number of the port's other policy; 0: it has none.
    sibling: u32,
    pub table: PortTable,
    /// Where the table's list lies.
    place: Place,
    members: BTreeSet<Member>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    first: u32,
    count: u32,
}

impl Programmed {
    /// Its frontends as the data plane has them.
    pub fn frontends(&self) -> impl Iterator<Item = (FrontendKey, Frontend)> {
        let Place { first, count } = self.place;
        self.table.frontends.iter().map(move |key| {
            let value = Frontend {
                service: self.service,
                first,
                count,
                affinity_seconds: self.table.affinity_seconds,
                sibling: self.sibling,
                least_connections: self.table.selection == Selection::LeastConnections,
                held: self.table.held.contains(key),
            };
            (*key, value)
        })
    }
}

/// A part of a Service that could not be programmed. The rest of it, and everybody else, is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Another Service has this address and port.
    Taken { frontend: FrontendKey, owner: Arc<PortKey> },
    /// The data plane has no room for it: "slots", "backends", "services", "frontends" or "members".
    Full { port: Arc<PortKey>, what: &'static str },
}

/// What a change means for sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// A UDP backend has gone: sockets that are connected to it want to be told.
    pub lost_udp: bool,
}

impl Reconciler {
    /// Begins with what the data plane holds already. Until [`Reconciler::complete`] nothing of that is removed.
    pub fn new(node: Node, plane: &mut dyn DataPlane) -> io::Result<Reconciler> {
        let sizes = plane.sizes();
        let (mut ranges, mut backends) = (Ranges::new(sizes.slots), Backends::new(sizes.backends));
        let mut services = Numbers::new(sizes.services);
        // What the earlier life had just replaced is not to be found, but may still be being read.
        plane.wait_for_readers()?;
        let inherited = Inherited::take(plane.existing()?, &mut ranges, &mut backends, &mut services);
        Ok(Reconciler {
            node,
            sizes,
            ranges,
            backends,
            services,
            claims: Claims::default(),
            ports: HashMap::new(),
            problems: BTreeMap::new(),
            frontends: 0,
            members: 0,
            room: false,
            inherited: Some(inherited),
            pending: Pending::default(),
            lost_udp: false,
            retired: Retired::default(),
        })
    }

    /// Programs these Services as the state has them. After an error the rest is written with the next call.
    pub fn apply(
        &mut self,
        state: &State,
        names: BTreeSet<Name>,
        plane: &mut dyn DataPlane,
        now_ns: u64,
    ) -> io::Result<Outcome> {
        let refused = std::mem::take(&mut self.room).then(|| self.refused());
        let names: BTreeSet<Name> = names.into_iter().chain(refused.into_iter().flatten()).collect();
        let mut tables: BTreeMap<Name, Vec<PortTable>> = BTreeMap::new();
        let mut others = BTreeSet::new();
        for name in names {
            let wanted = self.tables(state, &name);
            others.append(&mut self.claim(state, &name, &wanted));
            tables.insert(name, wanted);
        }
        for name in others {
            tables.entry(name).or_insert_with_key(|name| self.tables(state, name));
        }
        for (name, wanted) in tables {
            self.plan(&name, wanted);
        }
        self.write(plane, now_ns)
    }

    /// Everything has been told: what is left of an earlier life is wanted by nobody.
    pub fn complete(&mut self, plane: &mut dyn DataPlane, now_ns: u64) -> io::Result<Outcome> {
        if let Some(inherited) = self.inherited.take() {
            self.disinherit(inherited);
        }
        self.write(plane, now_ns)
    }

    /// Gives back what nobody reads any more. Returns when this is to be called again, on the clock of `now_ns`.
    pub fn tidy(&mut self, plane: &mut dyn DataPlane, now_ns: u64) -> io::Result<Option<u64>> {
        if self.retired.due_ns().is_some_and(|due| due <= now_ns) {
            plane.wait_for_readers()?;
            let garbage = self.retired.take(now_ns);
            garbage.ranges.into_iter().for_each(|(first, length)| self.ranges.give(first, length));
            garbage.backends.into_iter().for_each(|number| self.backends.give(number));
            garbage.services.into_iter().for_each(|number| self.services.give(number));
            self.room = true;
        }
        Ok(self.retired.due_ns())
    }

    /// Whether something was given back that a Service without room may be waiting for: then `apply` is to be called.
    pub fn has_room(&self) -> bool {
        self.room && !self.refused().is_empty()
    }

    /// When there will be something to tidy.
    pub fn due_ns(&self) -> Option<u64> {
        self.retired.due_ns()
    }

    /// What is programmed, in the order of names.
    pub fn ports(&self) -> Vec<&Programmed> {
        let mut ports: Vec<_> = self.ports.values().flatten().collect();
        ports.sort_by(|a, b| a.key.cmp(&b.key));
        ports
    }

    /// What could not be programmed.
    pub fn problems(&self) -> impl Iterator<Item = (&Name, &Problem)> {
        self.problems.iter().flat_map(|(name, problems)| problems.iter().map(move |problem| (name, problem)))
    }

    /// The ports of a Service.
    pub fn ports_of(&self, service: &Name) -> &[Programmed] {
        self.ports.get(service).map_or(&[], Vec::as_slice)
    }

    /// This node has become another one, such as one of another zone. All Services are to be applied again.
    pub fn set_node(&mut self, node: Node) {
        self.node = node;
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The port that a frontend leads to.
    pub fn owner(&self, frontend: &FrontendKey) -> Option<&Arc<PortKey>> {
        self.claims.owner(frontend)
    }

    /// The number of a backend, by which the data plane counts for it.
    pub fn backend(&self, endpoint: &Endpoint) -> Option<u32> {
        self.backends.number(endpoint)
    }

    /// Every backend with its number, in no particular order.
    pub fn backends(&self) -> impl Iterator<Item = (&Endpoint, u32)> {
        self.backends.iter()
    }

    /// How much of each kind is in use.
    pub fn used(&self) -> Sizes {
        Sizes {
            slots: self.sizes.slots - self.ranges.left(),
            backends: self.backends.len() as u32,
            services: self.services.used(),
            frontends: self.claims.len() as u32,
            members: self.members,
        }
    }

    /// Services for which there was no room.
    fn refused(&self) -> Vec<Name> {
        let is_full = |problems: &Vec<Problem>| problems.iter().any(|problem| matches!(problem, Problem::Full { .. }));
        self.problems.iter().filter(|(_, problems)| is_full(problems)).map(|(name, _)| name.clone()).collect()
    }

    fn tables(&self, state: &State, name: &Name) -> Vec<PortTable> {
        let Some(service) = state.service(name) else { return Vec::new() };
        table::of(service, &state.slices(name), &self.node)
    }

    /// Makes the claims of a Service; returns which others that concerns.
    fn claim(&mut self, state: &State, name: &Name, tables: &[PortTable]) -> BTreeSet<Name> {
        let service = state.service(name);
        let created: Arc<str> = service.map_or("", |service| &service.created).into();
        let is_given = |frontend: &FrontendKey| service.is_some_and(|s| s.cluster_ips.contains(&frontend.address.ip()));
        let wishes = tables.iter().flat_map(|table| {
            let (created, key) = (created.clone(), Arc::new(table.key.clone()));
            table.frontends.iter().map(move |frontend| {
                let is_external = !is_given(frontend);
                (*frontend, Claim { is_external, created: created.clone(), key: key.clone() })
            })
        });
        let moved = self.claims.replace(name, wishes);
        moved.unclaimed.into_iter().for_each(|frontend| self.set_frontend(frontend, None));
        moved.others
    }

    // --- planning: book-keeping only ----------------------------------------------------------------------------

    fn plan(&mut self, name: &Name, wanted: Vec<PortTable>) {
        let before = self.ports.remove(name).into_iter().flatten();
        let mut before: HashMap<Arc<PortKey>, Programmed> = before.map(|port| (port.key.clone(), port)).collect();
        self.problems.remove(name);
        let mut ports: Vec<Programmed> = Vec::new();
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

    /// Plans one port. Without room for it, it is left to the kernel, or to what an earlier life has left.
    fn plan_port(&mut self, table: PortTable, old: Option<Programmed>) -> Option<Programmed> {
        let key = Arc::new(table.key.clone());
        let frontends = table.frontends.clone();
        match self.build(key.clone(), table, old.as_ref()) {
            Ok(port) => {
                self.retire(old, Some(&port));
                Some(port)
            }
            Err(what) => {
                let is_left = |frontend: &FrontendKey| {
                    self.inherited.as_ref().is_some_and(|known| known.frontends.contains_key(frontend))
                };
                let mine = |frontend: &FrontendKey| self.claims.owner(frontend) == Some(&key) && !is_left(frontend);
                let gone: Vec<FrontendKey> = frontends.into_iter().filter(mine).collect();
                gone.into_iter().for_each(|frontend| self.set_frontend(frontend, None));
                self.problem(key.service.clone(), Problem::Full { port: key, what });
                self.retire(old, None);
                None
            }
        }
    }

    /// Finds room for everything that the port needs, or for nothing of it; then the error says what there is no more
    /// room for.
    fn build(&mut self, key: Arc<PortKey>, table: PortTable, old: Option<&Programmed>) -> Result<Programmed, Full> {
        let before = old.map_or((0, 0), |old| (old.table.frontends.len() as u32, old.members.len() as u32));
        if self.frontends - before.0 + table.frontends.len() as u32 > self.sizes.frontends {
            return Err("frontends");
        }
        // During a change old and new members lie side by side.
        if table.remembers() && self.members - before.1 + table.list.len() as u32 > self.sizes.members / 2 {
            return Err("members");
        }
        self.hold(&table)?;
        let place = self.place(&table, old).inspect_err(|_| self.release(&table))?;
        let Some(service) = self.number(&table, old) else {
            self.release(&table);
            self.give(place);
            return Err("services");
        };
        let members = self.members_of(&table, service);
        self.take_over_members(&table, service, &members);
        self.frontends += table.frontends.len() as u32;
        self.members += members.len() as u32;
        self.pending.members.extend(members.iter().map(|member| (*member, true)));
        Ok(Programmed { key, service, sibling: 0, table, place, members })
    }

    /// One more user of each of the port's backends.
    fn hold(&mut self, table: &PortTable) -> Result<(), Full> {
        let endpoints = table.endpoints();
        for (done, endpoint) in endpoints.iter().enumerate() {
            let Some(numbered) = self.backends.hold(*endpoint) else {
                endpoints.iter().take(done).for_each(|held| self.release_one(held));
                return Err("backends");
            };
            if numbered.fresh {
                self.pending.backends.push((numbered.number, *endpoint));
            }
        }
        Ok(())
    }

    fn release(&mut self, table: &PortTable) {
        table.endpoints().iter().for_each(|endpoint| self.release_one(endpoint));
    }

    fn release_one(&mut self, endpoint: &Endpoint) {
        self.pending.replaced.backends.extend(self.backends.release(endpoint));
    }

    /// Where the port's list lies: where it did if it is the same.
    fn place(&mut self, table: &PortTable, old: Option<&Programmed>) -> Result<Place, Full> {
        if let Some(old) = old.filter(|old| old.table.list == table.list) {
            return Ok(old.place);
        }
        let number = |backend: &Backend| Some((self.backends.number(&backend.endpoint)?, backend.weight));
        let slots = alias::slots(&table.list.iter().filter_map(number).collect::<Vec<_>>());
        let count = slots.len() as u32;
        if count == 0 {
            return Ok(Place::default());
        }
        let first = self.ranges.take(count).ok_or("slots")?;
        self.pending.slots.push((first, slots));
        Ok(Place { first, count })
    }

    /// A place that nobody has ever read.
    fn give(&mut self, place: Place) {
        if place.count > 0 {
            self.ranges.give(place.first, place.count);
            self.pending.slots.retain(|(first, _)| *first != place.first);
        }
    }

    /// The number by which the port is counted: the one that it had, in this life or an earlier one.
    fn number(&mut self, table: &PortTable, old: Option<&Programmed>) -> Option<u32> {
        if let Some(old) = old {
            return Some(old.service);
        }
        let frontends = table.frontends.iter().copied();
        if let Some(number) = self.inherited.as_mut().and_then(|inherited| inherited.service(frontends)) {
            return Some(number);
        }
        let number = self.services.take()?;
        self.pending.services.push(number);
        Some(number)
    }

    /// Members are kept where a choice is remembered.
    fn members_of(&self, table: &PortTable, service: u32) -> BTreeSet<Member> {
        if !table.remembers() {
            return BTreeSet::new();
        }
        let numbers = table.endpoints().into_iter().filter_map(|endpoint| self.backends.number(&endpoint));
        numbers.map(|backend| Member { service, backend }).collect()
    }

    /// Those of an earlier life that are none any more go at once, unless nobody has come in their place: then it may
    /// be that the endpoints could not be read.
    fn take_over_members(&mut self, table: &PortTable, service: u32, members: &BTreeSet<Member>) {
        let Some(inherited) = self.inherited.as_mut().filter(|_| !table.list.is_empty()) else { return };
        let lost: Vec<Member> = inherited.take_members(service).difference(members).copied().collect();
        self.lost_udp |= table.key.protocol == Protocol::Udp && !lost.is_empty();
        self.pending.members.extend(lost.into_iter().map(|member| (member, false)));
    }

    /// Where an earlier life has left somebody who answers, nobody does not take the place before everything is known.
    fn plan_frontends(&mut self, port: &Programmed) {
        for (frontend, value) in port.frontends() {
            let is_left = value.count == 0 && self.inherited.as_ref().is_some_and(|known| known.serves(&frontend));
            match self.claims.owner(&frontend).cloned() {
                Some(owner) if owner == port.key && is_left => {}
                Some(owner) if owner == port.key => self.set_frontend(frontend, Some(value)),
                Some(owner) => self.problem(port.key.service.clone(), Problem::Taken { frontend, owner }),
                None => {}
            }
        }
    }

    /// From now on the frontend is what this life has made of it, whatever an earlier one had left there.
    fn set_frontend(&mut self, frontend: FrontendKey, value: Option<Frontend>) {
        self.pending.frontends.insert(frontend, value);
        if let Some(inherited) = &mut self.inherited {
            inherited.frontends.remove(&frontend);
        }
    }

    /// What the port had and its successor does not use rests until it is given back.
    fn retire(&mut self, old: Option<Programmed>, new: Option<&Programmed>) {
        let Some(old) = old else { return };
        self.release(&old.table);
        let is_kept = new.is_some_and(|new| new.place == old.place);
        let range = Some(old.place).filter(|place| place.count > 0 && !is_kept);
        self.pending.replaced.ranges.extend(range.map(|place| (place.first, place.count)));
        if new.is_none() {
            self.pending.replaced.services.push(old.service);
        }
        let none = BTreeSet::new();
        let lost: Vec<_> = old.members.difference(new.map_or(&none, |new| &new.members)).collect();
        self.frontends -= old.table.frontends.len() as u32;
        self.members -= old.members.len() as u32;
        self.lost_udp |= old.key.protocol == Protocol::Udp && !lost.is_empty();
        self.pending.members.extend(lost.into_iter().map(|member| (*member, false)));
    }

    /// What nobody has taken over from an earlier life goes, and nobody takes the place of somebody.
    fn disinherit(&mut self, inherited: Inherited) {
        let is_programmed = |frontend: &FrontendKey| {
            self.claims
                .owner(frontend)
                .is_some_and(|owner| self.ports_of(&owner.service).iter().any(|p| p.key == *owner))
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
    }

    fn problem(&mut self, service: Name, problem: Problem) {
        self.problems.entry(service).or_default().push(problem);
    }

    // --- writing ------------------------------------------------------------------------------------------------

    fn write(&mut self, plane: &mut dyn DataPlane, now_ns: u64) -> io::Result<Outcome> {
        let replaced = self.pending.write(plane)?;
        self.retired.add(now_ns, replaced);
        Ok(Outcome { lost_udp: std::mem::take(&mut self.lost_udp) })
    }
}

/// The two policies of a port know of each other.
fn link_siblings(ports: &mut [Programmed]) {
    let numbers: Vec<_> = ports.iter().map(|port| (port.key.clone(), port.service)).collect();
    for port in ports {
        let sibling = numbers.iter().find(|(key, _)| key.is_sibling(&port.key));
        port.sibling = sibling.map_or(0, |(_, service)| *service);
    }
}

/// What there is no room for.
type Full = &'static str;
