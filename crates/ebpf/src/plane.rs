//! The maps of the Service programs as the reconciler's data plane.

use crate::error::{Doing, Result};
use crate::grace;
use crate::layout::{
    self, MapData, WITH_NODE_PORTS, WITHOUT_NODE_PORTS, address, backend, frontend, frontend_key, member_key,
    network_key, service_counters, slot, source_key,
};
use crate::shared::Shared;
use crate::table::Table;
use ipnet::IpNet;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sidestep_mesh::address::{Address, Endpoint};
use sidestep_mesh::plane::{DataPlane, Existing, Frontend, FrontendKey, Member, Sizes, Slot, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::offset_of;
use std::path::Path;

/// All tables of Services that the agent writes or reads.
pub struct Maps {
    sizes: Sizes,
    frontends: Table<frontend_key, frontend>,
    members: Table<member_key, u8>,
    node_addresses: Table<address, u8>,
    isolated: Table<address, u8>,
    sources: Table<source_key, u8>,
    pod_networks: Table<network_key, u8>,
    slots: Shared<slot>,
    backends: Shared<backend>,
    services: MapHandle,
    reasons: MapHandle,
}

/// The counters of one port of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections and flows that got a backend.
    pub picks: u64,
    /// Of these, how many got the client's previous backend.
    pub affinity_hits: u64,
    /// Connections that were refused because there was no endpoint.
    pub refused: u64,
}

/// The counters of one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Connected sockets.
    pub active: u64,
    /// Connections and flows that it got.
    pub picks: u64,
}

/// Names of `enum reason` in crates/bpf/src/services.h, in its order (tests/shape/tests/shared_tables.rs).
pub const REASONS: [&str; 38] = [
    "translated",
    "refused",
    "backend-missing",
    "no-storage",
    "flow-not-kept",
    "tuple-in-use",
    "bind-refused",
    "captured-outbound",
    "captured-inbound",
    "captured-dns",
    "not-captured",
    "no-route",
    "source-not-kept",
    "orig-dst-not-stored",
    "accepted",
    "listener-not-kept",
    "refused-inside",
    "without-proxy",
    "policy-denied-out",
    "policy-denied-in",
    "policy-would-deny-out",
    "policy-would-deny-in",
    "bypassed-outbound",
    "bypassed-inbound",
    "bypass-refused",
    "not-watched",
    "source-routed",
    "source-forged",
    "not-admitted-out",
    "not-admitted-in",
    "too-many-pending",
    "conversation-not-kept",
    "listener-of-others",
    "packet-translated",
    "packet-without-endpoint",
    "packet-not-in-ranges",
    "packet-not-tracked",
    "packet-refused",
];

/// The [`REASONS`] that concern captured pods.
pub const OF_CAPTURE: [&str; 13] = [
    "captured-outbound",
    "captured-inbound",
    "captured-dns",
    "not-captured",
    "no-route",
    "source-not-kept",
    "orig-dst-not-stored",
    "accepted",
    "listener-not-kept",
    "refused-inside",
    "without-proxy",
    "too-many-pending",
    "listener-of-others",
];

impl Maps {
    /// Opens the tables that are pinned in this directory.
    pub fn open(directory: &Path) -> Result<Maps> {
        let open = |name: &str| MapHandle::from_pinned_path(directory.join(name)).at("open", &directory.join(name));
        let (frontends, members, services) = (open("frontends")?, open("members")?, open("service_counters")?);
        let sources = open("source_ranges")?;
        let (slots, backends) = (Shared::new(&open("slots")?, "slots")?, Shared::new(&open("backends")?, "backends")?);
        Ok(Maps {
            sizes: Sizes {
                slots: slots.len(),
                backends: backends.len(),
                services: services.max_entries(),
                frontends: frontends.max_entries(),
                members: members.max_entries(),
                sources: sources.max_entries(),
            },
            frontends: Table::new(frontends, "frontends"),
            members: Table::new(members, "members"),
            node_addresses: Table::new(open("node_addresses")?, "node_addresses"),
            isolated: Table::new(open("isolated_addresses")?, "isolated_addresses"),
            sources: Table::new(sources, "source_ranges"),
            pod_networks: Table::new(open("pod_networks")?, "pod_networks"),
            slots,
            backends,
            services,
            reasons: open("reasons")?,
        })
    }

    /// Sets the node's own addresses, and at which of them NodePorts answer.
    pub fn set_node_addresses(
        &mut self,
        own: &BTreeSet<Address>,
        has_node_ports: impl Fn(Address) -> bool,
    ) -> Result<()> {
        let kind = |address| if has_node_ports(address) { WITH_NODE_PORTS } else { WITHOUT_NODE_PORTS };
        let entries = self.node_addresses.entries()?.into_iter();
        let old: BTreeMap<Address, u8> = entries.map(|(address, kind)| (layout::to_address(&address), kind)).collect();
        // Removals first, to make room for additions.
        let gone = old.keys().filter(|address| !own.contains(*address));
        self.node_addresses.remove_all(&gone.map(|address| layout::address_of(*address)).collect::<Vec<_>>())?;
        let wanted = own.iter().map(|address| (*address, kind(*address)));
        let new = wanted.filter(|(address, kind)| old.get(address) != Some(kind));
        self.node_addresses.put_all(&new.map(|(address, kind)| (layout::address_of(address), kind)).collect::<Vec<_>>())
    }

    /// Sets the networks of the cluster's pods.
    pub fn set_pod_networks(&mut self, wanted: &[IpNet]) -> Result<()> {
        let wanted: Vec<_> = wanted.iter().map(|network| (layout::network_of(network), 1)).collect();
        let is_wanted = |key: &network_key| wanted.iter().any(|(one, _)| one.bytes() == key.bytes());
        self.pod_networks.retain(is_wanted)?;
        self.pod_networks.put_all(&wanted)
    }

    /// The addresses at which NodePorts answer.
    pub fn node_addresses(&self) -> Result<BTreeSet<Address>> {
        let entries = self.node_addresses.entries()?.into_iter();
        let found = entries.filter(|(_, kind)| *kind == WITH_NODE_PORTS);
        Ok(found.map(|(address, _)| layout::to_address(&address)).collect())
    }

    /// Whether packets from outside keep their source towards this backend; see [`Isolated`](crate::isolated::Isolated).
    pub fn is_isolated(&self, backend: Address) -> Result<bool> {
        Ok(self.isolated.get(&layout::address_of(backend))?.is_some())
    }

    /// The frontend with this key.
    pub fn frontend(&self, key: &FrontendKey) -> Result<Option<Frontend>> {
        Ok(self.frontends.get(&layout::key_of(key))?.as_ref().map(layout::to_frontend))
    }

    /// All frontends.
    pub fn frontends(&self) -> Result<Vec<(FrontendKey, Frontend)>> {
        let entries = self.frontends.entries()?;
        Ok(entries.iter().filter_map(|(key, value)| Some((layout::to_key(key)?, layout::to_frontend(value)))).collect())
    }

    /// The numbers of the backends behind a frontend.
    pub fn backends_of(&self, frontend: &Frontend) -> BTreeSet<u32> {
        let end = frontend.first.saturating_add(frontend.count).min(self.slots.len());
        let slots = (frontend.first..end).map(|place| self.slots.get(place));
        slots.flat_map(|slot| [slot.backend, slot.other]).filter(|number| *number != 0).collect()
    }

    /// The endpoint of the backend with this number.
    pub fn endpoint(&self, number: u32) -> Endpoint {
        layout::to_endpoint(&self.backends.get(number).endpoint)
    }

    /// The counters of the backend with this number.
    pub fn load(&self, number: u32) -> Load {
        Load {
            active: self.backends.counter(number, offset_of!(backend, active)),
            picks: self.backends.counter(number, offset_of!(backend, picks)),
        }
    }

    /// The counters of the Service with this number, summed over all processors.
    pub fn counters(&self, service: u32) -> Result<Counters> {
        let found =
            self.services.lookup_percpu(service.bytes(), MapFlags::ANY).doing("map service_counters: look up")?;
        let each = found.into_iter().flatten().filter_map(|bytes| service_counters::from_bytes(&bytes));
        Ok(each.fold(Counters::default(), |sum, one| Counters {
            picks: sum.picks + one.picks,
            affinity_hits: sum.affinity_hits + one.affinity_hits,
            refused: sum.refused + one.refused,
        }))
    }

    /// The count of each of [`REASONS`].
    pub fn reasons(&self) -> Result<Vec<(&'static str, u64)>> {
        let count = |reason: u32| -> Result<u64> {
            let found = self.reasons.lookup_percpu(reason.bytes(), MapFlags::ANY).doing("map reasons: look up")?;
            Ok(found.into_iter().flatten().filter_map(|bytes| u64::from_bytes(&bytes)).sum())
        };
        (0..).zip(REASONS).map(|(reason, name)| Ok((name, count(reason)?))).collect()
    }
}

/// Converts the maps' errors to those of the trait.
fn io(result: Result<()>) -> io::Result<()> {
    result.map_err(io::Error::other)
}

impl DataPlane for Maps {
    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn existing(&mut self) -> io::Result<Existing> {
        let frontends = self.frontends().map_err(io::Error::other)?;
        let members: Vec<Member> = self.members.keys().map(|key| layout::to_member(&key)).collect();
        let in_lists = frontends.iter().flat_map(|(_, frontend)| self.backends_of(frontend));
        let numbers: BTreeSet<u32> = in_lists.chain(members.iter().map(|member| member.backend)).collect();
        let known = numbers.into_iter().filter(|number| *number < self.backends.len());
        let known = known.map(|number| (number, self.endpoint(number)));
        Ok(Existing {
            // A member of a killed agent may name a number that was never written.
            backends: known.filter(|(_, endpoint)| endpoint.port != 0).collect(),
            members,
            sources: self.sources.keys().filter_map(|key| layout::to_source(&key)).collect(),
            frontends,
        })
    }

    fn clear_service(&mut self, service: u32) -> io::Result<()> {
        let zeros = vec![
            service_counters::default().bytes().to_vec();
            libbpf_rs::num_possible_cpus().map_err(io::Error::other)?
        ];
        io(self.services.update_percpu(service.bytes(), &zeros, MapFlags::ANY).doing("map service_counters: clear"))
    }

    /// Writes the backend with a new generation, so that sockets of the number's former backend do not count for this one.
    fn put_backend(&mut self, number: u32, endpoint: Endpoint) -> io::Result<()> {
        let before = self.backends.get(number);
        if layout::to_endpoint(&before.endpoint) != endpoint {
            let (generation, endpoint) = (before.generation.wrapping_add(1), layout::endpoint_of(endpoint));
            self.backends.put(number, backend { endpoint, generation, active: 0, picks: 0 });
        }
        Ok(())
    }

    fn put_slots(&mut self, first: u32, slots: &[Slot]) -> io::Result<()> {
        for (place, slot) in (first..).zip(slots) {
            self.slots.put(place, layout::slot_of(slot));
        }
        Ok(())
    }

    fn put_members(&mut self, members: &[Member]) -> io::Result<()> {
        let entries: Vec<_> = members.iter().map(|member| (layout::member_of(member), 1)).collect();
        io(self.members.put_all(&entries))
    }

    fn put_sources(&mut self, sources: &[Source]) -> io::Result<()> {
        let entries: Vec<_> = sources.iter().map(|source| (layout::source_of(source), 1)).collect();
        io(self.sources.put_all(&entries))
    }

    fn remove_sources(&mut self, sources: &[Source]) -> io::Result<()> {
        io(self.sources.remove_all(&sources.iter().map(layout::source_of).collect::<Vec<_>>()))
    }

    fn put_frontends(&mut self, frontends: &[(FrontendKey, Frontend)]) -> io::Result<()> {
        // Everything that the frontends refer to is visible to all processors before the frontends are.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let entries: Vec<_> =
            frontends.iter().map(|(key, value)| (layout::key_of(key), layout::frontend_of(value))).collect();
        io(self.frontends.put_all(&entries))
    }

    fn remove_frontends(&mut self, keys: &[FrontendKey]) -> io::Result<()> {
        io(self.frontends.remove_all(&keys.iter().map(layout::key_of).collect::<Vec<_>>()))
    }

    fn remove_members(&mut self, members: &[Member]) -> io::Result<()> {
        io(self.members.remove_all(&members.iter().map(layout::member_of).collect::<Vec<_>>()))
    }

    fn wait_for_readers(&mut self) -> io::Result<()> {
        grace::wait_for_readers();
        Ok(())
    }
}
