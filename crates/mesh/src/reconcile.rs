//! Reconciles the data plane with the Services, one Service at a time.
//!
//! Order of publication: backends, members and slots of the new list come first, then the frontends, each of which changes
//! atomically. What only the old list used is freed when no program can still be reading it. So no frontend ever refers to
//! missing entries.

mod plan;

use crate::address::Endpoint;
use crate::backends::Backends;
use crate::choose::Node;
use crate::claims::{Claim, Claims};
use crate::inherited::Inherited;
use crate::object::{Name, Selection};
use crate::pending::Pending;
use crate::plane::{DataPlane, Frontend, FrontendKey, Member, Sizes, Source};
use crate::ranges::{Numbers, Ranges};
use crate::retired::Retired;
use crate::shares::{NumberedShares, Shares};
use crate::state::State;
use crate::table::{self, PortKey, PortTable};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

/// What has been written to the data plane, and what of its room is in use.
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
    shares: PortShares,
    /// Whether anything was freed since the last change.
    room: bool,
    pending: Pending,
    lost_udp: bool,
    retired: Retired,
}

/// What each namespace holds, since a tenant's Services and slices may ask for any number of entries.
#[derive(Default)]
struct PortShares {
    frontends: Shares,
    members: Shares,
    sources: Shares,
    /// By the first slot of each list. What was replaced counts until it is free: a tenant replaces as often as it likes.
    slots: NumberedShares,
    /// A backend counts for the namespace that was the first to have it.
    backends: NumberedShares,
    services: NumberedShares,
}

/// One port of a Service, as it is in the maps.
#[derive(Clone, Debug)]
pub struct Programmed {
    /// As in `table`; shared with claims and problems.
    pub key: Arc<PortKey>,
    /// Index of its counters.
    pub service: u32,
    /// Number of the port's other traffic policy; 0: none.
    sibling: u32,
    /// What the port was programmed from.
    pub table: PortTable,
    /// Where the list is in the array of slots.
    slots: SlotRange,
    members: BTreeSet<Member>,
    sources: BTreeSet<Source>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SlotRange {
    first: u32,
    count: u32,
}

impl Programmed {
    /// The frontends, as the data plane has them.
    pub fn frontends(&self) -> impl Iterator<Item = (FrontendKey, Frontend)> {
        let SlotRange { first, count } = self.slots;
        self.table.frontends.iter().map(move |key| {
            let value = Frontend {
                service: self.service,
                first,
                count,
                affinity_seconds: self.table.affinity_seconds,
                sibling: self.sibling,
                least_connections: self.table.selection == Selection::LeastConnections,
                held: self.table.held.contains(key),
                masquerade: self.table.is_masqueraded(key),
                restricted: self.table.restricted.contains(key),
                elsewhere: self.table.elsewhere,
            };
            (*key, value)
        })
    }
}

/// A part of a Service that could not be programmed. The rest of the Service, and all others, are programmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Another Service has this address and port.
    Taken {
        /// What both claim.
        frontend: FrontendKey,
        /// The port that has it.
        owner: Arc<PortKey>,
    },
    /// The data plane is full, or the Service's namespace would hold more of it than it leaves to others. The port is tried again
    /// when room is freed.
    Full {
        /// Left to the kernel, or still as an earlier process of the agent programmed it.
        port: Arc<PortKey>,
        /// "slots", "backends", "services", "frontends", "members" or "sources".
        what: &'static str,
        /// There is room, but not for this namespace.
        of_namespace: bool,
    },
}

/// Consequences of a change for sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// A UDP backend has gone: sockets that are connected to it must be reconnected or aborted.
    pub lost_udp: bool,
}

impl Reconciler {
    /// Starts from what the data plane holds already. Nothing of that is removed before [`Reconciler::complete`].
    pub fn new(node: Node, plane: &mut dyn DataPlane) -> io::Result<Reconciler> {
        let sizes = plane.sizes();
        let (mut ranges, mut backends) = (Ranges::new(sizes.slots), Backends::new(sizes.backends));
        let mut services = Numbers::new(sizes.services);
        // Programs may still be reading entries that the earlier process had just replaced, which cannot be found any more.
        plane.wait_for_readers()?;
        let inherited = Inherited::claim(plane.existing()?, &mut ranges, &mut backends, &mut services);
        Ok(Reconciler {
            node,
            sizes,
            ranges,
            backends,
            services,
            claims: Claims::default(),
            ports: HashMap::new(),
            problems: BTreeMap::new(),
            shares: PortShares::default(),
            room: false,
            inherited: Some(inherited),
            pending: Pending::default(),
            lost_udp: false,
            retired: Retired::default(),
        })
    }

    /// Programs these Services as the state has them. After an error the next call writes the rest.
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

    /// Call when the sources have reported everything: removes what is left of an earlier process.
    pub fn complete(&mut self, plane: &mut dyn DataPlane, now_ns: u64) -> io::Result<Outcome> {
        if let Some(inherited) = self.inherited.take() {
            self.disinherit(inherited);
        }
        self.write(plane, now_ns)
    }

    /// Frees what no program reads any more. Returns when to call this again, on the clock of `now_ns`.
    pub fn collect_garbage(&mut self, plane: &mut dyn DataPlane, now_ns: u64) -> io::Result<Option<u64>> {
        if self.retired.due_ns().is_some_and(|due| due <= now_ns) {
            plane.wait_for_readers()?;
            let garbage = self.retired.collect(now_ns);
            for (first, length) in garbage.ranges {
                self.ranges.give(first, length);
                self.shares.slots.give(first, length);
            }
            for number in garbage.backends {
                self.backends.give(number);
                self.shares.backends.give(number, 1);
            }
            for number in garbage.services {
                self.services.give(number);
                self.shares.services.give(number, 1);
            }
            self.room = true;
        }
        Ok(self.retired.due_ns())
    }

    /// Whether room was freed for which a Service may be waiting: then call `apply`.
    pub fn has_room(&self) -> bool {
        self.room && !self.refused().is_empty()
    }

    /// When `collect_garbage` will have something to do.
    pub fn due_ns(&self) -> Option<u64> {
        self.retired.due_ns()
    }

    /// All programmed ports, ordered by name.
    pub fn ports(&self) -> Vec<&Programmed> {
        let mut ports: Vec<_> = self.ports.values().flatten().collect();
        ports.sort_by(|a, b| a.key.cmp(&b.key));
        ports
    }

    /// All problems, with the Service of each.
    pub fn problems(&self) -> impl Iterator<Item = (&Name, &Problem)> {
        self.problems.iter().flat_map(|(name, problems)| problems.iter().map(move |problem| (name, problem)))
    }

    /// The ports of a Service.
    pub fn ports_of(&self, service: &Name) -> &[Programmed] {
        self.ports.get(service).map_or(&[], Vec::as_slice)
    }

    /// Replaces the node's properties, such as its zone. All Services must be applied again.
    pub fn set_node(&mut self, node: Node) {
        self.node = node;
    }

    /// The node whose endpoints count as local.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The port that owns a frontend.
    pub fn owner(&self, frontend: &FrontendKey) -> Option<&Arc<PortKey>> {
        self.claims.owner(frontend)
    }

    /// The number of a backend, under which the data plane counts.
    pub fn backend(&self, endpoint: &Endpoint) -> Option<u32> {
        self.backends.number(endpoint)
    }

    /// All backends with their numbers, in no particular order.
    pub fn backends(&self) -> impl Iterator<Item = (&Endpoint, u32)> {
        self.backends.iter()
    }

    /// How many of each kind are taken, those of the past included that programs may still read.
    pub fn used(&self) -> Sizes {
        Sizes {
            slots: self.sizes.slots - self.ranges.left(),
            backends: self.backends.used(),
            services: self.services.used(),
            frontends: self.claims.len() as u32,
            members: self.shares.members.used() as u32,
            sources: self.shares.sources.used() as u32,
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

    /// Replaces the claims of a Service; returns the other Services that are affected.
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

    fn write(&mut self, plane: &mut dyn DataPlane, now_ns: u64) -> io::Result<Outcome> {
        let replaced = self.pending.write(plane)?;
        self.retired.add(now_ns, replaced);
        Ok(Outcome { lost_udp: std::mem::take(&mut self.lost_udp) })
    }
}
