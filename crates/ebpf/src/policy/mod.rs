//! Policy: the identities of addresses, and the policies of each pod.

mod addresses;
mod conversations;
mod differences;
mod layout;
mod sinks;

use crate::capture::Fill;
use crate::capture::inbound::{self, Installer};
use crate::error::{Error, Result};
use crate::grace::wait_for_readers;
use crate::service_pins;
use crate::table::{Full, Table};
use crate::table_room::TableRoom;
use addresses::AddressTable;
pub use addresses::Addresses;
use conversations::Conversations;
use ipnet::IpNet;
use layout::{
    identity, identity_key, identity_key_of, identity_of, policed, policed_of, range_key_of, rule_key, rule_key_of,
    rule_range_key,
};
use sidestep_mesh::address::Address;
use sidestep_mesh::policy::budget::TooMuch;
use sidestep_mesh::policy::plan::Known;
use sidestep_mesh::policy::tables::{Compiled, Entries, Gate, RuleKey};
use sinks::Sinks;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// All pods that have policies. Pods with the same entries share them.
pub struct Policies {
    pins: PathBuf,
    installer: Installer,
    pods: Table<u64, policed>,
    rules: Table<rule_key, u8>,
    ranges: Table<rule_range_key, u8>,
    identities: Table<identity_key, identity>,
    own: AddressTable,
    conversations: Conversations,
    current: Table<u32, u32>,
    /// Generation of the identities that this process writes: the numbers of an earlier process meant others.
    generation: u32,
    /// Whether programs without a pod's own generation use this one.
    is_current: bool,
    /// The highest identity number of an earlier process.
    last_identity: u32,
    /// What the table says of each address. None: writing it has failed, so the entry may be there or not.
    addresses: BTreeMap<Address, Option<Known>>,
    known: BTreeMap<u64, policed>,
    numbers: HashMap<Rc<Entries>, u32>,
    uses: BTreeMap<u32, (Written, usize)>,
    next: u32,
    /// Of rules and of ranges.
    rooms: [TableRoom; 2],
    _sinks: Sinks,
}

#[derive(Clone)]
struct Written {
    entries: Rc<Entries>,
    /// The namespace of the pod that was the first to have them: they count there, whoever shares them.
    domain: Arc<str>,
}

impl Policies {
    /// Opens the tables. Policies of an earlier process stay in force, pod by pod, until put again or [`Policies::complete`].
    pub fn open(pins: &Path) -> Result<Policies> {
        let directory = service_pins::maps_path(pins)?;
        let map = |name| inbound::open(&directory, name);
        let pods = Table::new(map("policed_pods")?, "policed_pods");
        let identities = Table::new(map("identities")?, "identities");
        let left: Vec<(u64, policed)> = pods.entries()?;
        let named: Vec<(identity_key, identity)> = identities.entries()?;
        let generations = left.iter().map(|(_, pod)| pod.generation).chain(named.iter().map(|(key, _)| key.generation));
        let rules = Table::new(map("policy_rules")?, "policy_rules");
        let ranges = Table::new(map("policy_ranges")?, "policy_ranges");
        // New numbers must be above everything that an earlier process has written, whether a pod refers to it or not.
        let written =
            rules.keys().map(|key: rule_key| key.policy).chain(ranges.keys().map(|key: rule_range_key| key.policy));
        let next = written.chain(left.iter().map(|(_, pod)| pod.policy)).max().unwrap_or(0).wrapping_add(1);
        let mut policies = Policies {
            pins: pins.into(),
            installer: Installer::new(pins),
            generation: generations.max().unwrap_or(0).wrapping_add(1),
            is_current: false,
            next,
            rooms: [
                TableRoom::new("policy_rules", rules.room(), PARTS),
                TableRoom::new("policy_ranges", ranges.room(), PARTS),
            ],
            last_identity: highest(&named),
            pods,
            rules,
            ranges,
            identities,
            own: AddressTable::new(Table::new(map("own_addresses")?, "own_addresses")),
            conversations: Conversations::new(map("conversations")?),
            current: Table::new(map("current")?, "current"),
            addresses: BTreeMap::new(),
            known: BTreeMap::new(),
            numbers: HashMap::new(),
            uses: BTreeMap::new(),
            _sinks: Sinks::new(&map("listeners")?)?,
        };
        policies.remove_dead()?;
        Ok(policies)
    }

    /// The highest identity number that an earlier process has left: new ones begin above it.
    pub fn last_identity(&self) -> u32 {
        self.last_identity
    }

    /// Writes the identities of addresses. Put policies that name a new identity before. Only pods that this process has put see
    /// them, until [`Policies::use_identities`]: the others see those of an earlier process.
    pub fn write_identities(&mut self, wanted: &BTreeMap<Address, Known>) -> Result<()> {
        let generation = self.generation;
        let gone: Vec<Address> = self.addresses.keys().filter(|at| !wanted.contains_key(at)).copied().collect();
        self.identities.remove_all(&gone.iter().map(|at| identity_key_of(generation, *at)).collect::<Vec<_>>())?;
        self.addresses.retain(|at, _| wanted.contains_key(at));
        let changed = wanted.iter().filter(|(at, known)| !self.is_written(at, known));
        let mut changed: Vec<(Address, Known)> = changed.map(|(at, known)| (*at, *known)).collect();
        // If there is no room for all, the pods that require their proxy come first: they must not be bypassed.
        changed.sort_by_key(|(_, known)| !known.requires_proxy);
        changed.chunks(CHUNK).try_for_each(|some| self.put_identities(some))
    }

    /// From now on all programs see the identities of this process.
    pub fn use_identities(&mut self) -> Result<()> {
        if !self.is_current {
            self.current.put_all(&[(0, self.generation)])?;
            self.is_current = true;
        }
        Ok(())
    }

    /// Whether all of these that require their proxy have been written: whoever has no identity is led around proxies.
    pub fn knows_who_requires_its_proxy(&self, wanted: &BTreeMap<Address, Known>) -> bool {
        wanted.iter().all(|(at, known)| !known.requires_proxy || self.is_written(at, known))
    }

    fn is_written(&self, at: &Address, known: &Known) -> bool {
        self.addresses.get(at) == Some(&Some(*known))
    }

    fn put_identities(&mut self, some: &[(Address, Known)]) -> Result<()> {
        let entries = some.iter().map(|(at, known)| (identity_key_of(self.generation, *at), identity_of(*known)));
        let entries = entries.collect::<Vec<_>>();
        self.addresses.extend(some.iter().map(|(at, _)| (*at, None)));
        self.identities.put_all(&entries).map_err(|error| too_small(error, "addresses"))?;
        self.addresses.extend(some.iter().map(|(at, known)| (*at, Some(*known))));
        Ok(())
    }

    /// Sets the addresses of the namespace, whether it has policies or not. Another source address counts as forged.
    pub fn know(&mut self, cookie: u64, addresses: &Addresses) -> Result<()> {
        self.own.put(cookie, addresses)
    }

    /// Sets the policies of the pod in this network namespace, which has these addresses; `domain` is its Kubernetes namespace. If
    /// there is no room for the policies, a pod that had policies keeps them, under the new defaults besides; another pod gets only
    /// the defaults, if its policies can deny anything. If there is no room for all addresses, the policies are in force all the
    /// same, also for what the pod sends to itself.
    pub fn put(
        &mut self,
        namespace: &Path,
        cookie: u64,
        domain: &str,
        addresses: &Addresses,
        wanted: &Compiled,
    ) -> Result<()> {
        // Addresses first, since what the pod sends to itself is never evaluated.
        let known = self.know(cookie, addresses);
        self.put_rules(namespace, cookie, domain, wanted).and(known)
    }

    fn put_rules(&mut self, namespace: &Path, cookie: u64, domain: &str, wanted: &Compiled) -> Result<()> {
        let number = match self.number(&wanted.entries, domain) {
            Ok(number) => number,
            Err(error) => {
                let only_defaults = policed_of(NO_RULES, self.generation, wanted.defaults);
                match self.pods.get(&cookie)? {
                    Some(old) => self.tighten(cookie, old, only_defaults.defaults)?,
                    None => self.write(namespace, cookie, only_defaults)?,
                }
                return Err(error);
            }
        };
        let before = self.known.get(&cookie).map(|written| written.policy);
        match self.write(namespace, cookie, policed_of(number, self.generation, wanted.defaults)) {
            Ok(()) => before.map_or(Ok(()), |old| self.release(old)),
            Err(error) => {
                self.release(number)?;
                Err(error)
            }
        }
    }

    /// The pod's old policies may be about one direction only: the other must not stay open.
    fn tighten(&mut self, cookie: u64, old: policed, defaults: [u32; 2]) -> Result<()> {
        let [egress, ingress] = old.defaults;
        let tighter = policed { defaults: [egress | defaults[0], ingress | defaults[1]], ..old };
        if tighter.defaults == old.defaults {
            return Ok(());
        }
        self.pods.put_all(&[(cookie, tighter)])?;
        // What an earlier process has written stays its own.
        self.known.entry(cookie).and_modify(|known| *known = tighter);
        Ok(())
    }

    fn write(&mut self, namespace: &Path, cookie: u64, wanted: policed) -> Result<()> {
        if !self.known.contains_key(&cookie) {
            self.conversations.make(cookie)?;
            self.installer.install(namespace, cookie)?;
        }
        self.pods.put_all(&[(cookie, wanted)])?;
        self.known.insert(cookie, wanted);
        Ok(())
    }

    /// Removes the pod's policies: everything is allowed. Its addresses stay known.
    pub fn remove(&mut self, cookie: u64) -> Result<()> {
        self.pods.remove_all(&[cookie])?;
        self.conversations.remove(cookie);
        inbound::remove_unused(&self.pins, cookie)?;
        self.known.remove(&cookie).map_or(Ok(()), |written| self.release(written.policy))
    }

    /// Removes everything of a namespace that has ended, or is no longer wanted.
    pub fn remove_pod(&mut self, cookie: u64) -> Result<()> {
        self.remove(cookie)?;
        self.own.remove(cookie)
    }

    /// Call when everything wanted has been put: removes what an earlier process has left besides.
    pub fn complete(&mut self) -> Result<()> {
        self.complete_but(&BTreeSet::new())
    }

    /// As `complete`, but these namespaces keep what they have: they could not be put.
    pub fn complete_but(&mut self, wanted: &BTreeSet<u64>) -> Result<()> {
        let left: Vec<u64> = self.pods.entries()?.into_iter().map(|(cookie, _)| cookie).collect();
        let is_left = |cookie: &u64| !self.known.contains_key(cookie) && !wanted.contains(cookie);
        left.into_iter().filter(is_left).collect::<Vec<_>>().into_iter().try_for_each(|cookie| self.remove(cookie))?;
        wait_for_readers();
        let stay: BTreeMap<u64, policed> = self.pods.entries()?.into_iter().collect();
        let policies: BTreeSet<u32> = stay.values().map(|pod| pod.policy).chain(self.uses.keys().copied()).collect();
        let own = [self.generation];
        let generations: BTreeSet<u32> = stay.values().map(|pod| pod.generation).chain(own).collect();
        self.rules.retain(|key| policies.contains(&key.policy))?;
        self.ranges.retain(|key| policies.contains(&key.policy))?;
        self.own.retain(|cookie| stay.contains_key(&cookie))?;
        self.conversations.retain(|cookie| stay.contains_key(&cookie));
        self.identities.retain(|key| generations.contains(&key.generation))
    }

    /// Whether the pod in this namespace has policies, perhaps those of an earlier process.
    pub fn is_policed(&self, netns: u64) -> Result<bool> {
        Ok(self.pods.get(&netns)?.is_some())
    }

    /// How full the tables are, by what this process has put.
    pub fn fill(&self) -> Vec<Fill> {
        let fill = |table, used, room| Fill { table, used, room };
        let [(_, rules, _), (_, ranges, _)] = self.rooms.each_ref().map(TableRoom::fill);
        vec![
            fill("policed_pods", self.known.len(), self.pods.room()),
            fill("policy_rules", rules, self.rules.room()),
            fill("policy_ranges", ranges, self.ranges.room()),
            fill("identities", self.addresses.values().flatten().count(), self.identities.room()),
            fill("own_addresses", self.own.len(), self.own.room()),
        ]
    }

    /// Cookies of the namespaces of pods that have policies.
    pub fn namespaces(&self) -> BTreeSet<u64> {
        self.known.keys().copied().collect()
    }

    /// Whether a pod that has policies was in this namespace, and the namespace has ended.
    pub fn has_ended(&self, netns: u64) -> bool {
        self.known.contains_key(&netns) && !inbound::is_alive(&self.pins, netns)
    }

    /// Removes the pods of namespaces that have ended.
    pub fn remove_dead(&mut self) -> Result<Vec<u64>> {
        let isolated = self.pods.entries()?.into_iter().map(|(cookie, _)| cookie);
        let dead: Vec<u64> = isolated.filter(|cookie| !inbound::is_alive(&self.pins, *cookie)).collect();
        dead.iter().try_for_each(|cookie| self.remove_pod(*cookie))?;
        Ok(dead)
    }

    // --- entries ------------------------------------------------------------------------------------------------------

    /// The number of these entries, which are written if they are new, and if the namespace may have so many.
    fn number(&mut self, entries: &Entries, domain: &str) -> Result<u32> {
        if let Some(number) = self.numbers.get(entries) {
            self.uses.get_mut(number).expect("every number in `numbers` has a use count").1 += 1;
            return Ok(*number);
        }
        match entries.too_much {
            None | Some(TooMuch::Entries(_)) => {
                self.has_room(entries, domain).map_err(|error| too_small(error, "rules"))?
            }
            Some(why) => return Err(Error::new("work out the policies of a pod", why)),
        }
        let number = self.next;
        let written = self.rules.add_all(&rules_of(number, &entries.rules));
        let written = written.and_then(|()| self.ranges.add_all(&ranges_of(number, &entries.ranges)));
        if let Err(error) = written {
            self.erase(number, entries)?;
            return Err(too_small(error, "rules"));
        }
        self.next = self.next.wrapping_add(1).max(1);
        let written = Written { entries: Rc::new(entries.clone()), domain: domain.into() };
        self.rooms.iter_mut().zip(counts(entries)).for_each(|(room, count)| room.take(&written.domain, count));
        self.numbers.insert(Rc::clone(&written.entries), number);
        self.uses.insert(number, (written, 1));
        Ok(number)
    }

    /// Checks the room beforehand: filling a table up takes long, and meanwhile no other pod has room.
    fn has_room(&self, more: &Entries, domain: &str) -> Result<()> {
        for (room, count) in self.rooms.iter().zip(counts(more)) {
            let (name, _, all) = room.fill();
            if more.too_much == Some(TooMuch::Entries(name)) {
                return Err(Error::new(format!("map {name}: put more than {all} entries"), Full { room: all }));
            }
            room.check(domain, count)?;
        }
        Ok(())
    }

    /// Gives a number back. Entries without a user are erased when no program can be reading them any more.
    fn release(&mut self, number: u32) -> Result<()> {
        let Some((written, uses)) = self.uses.get_mut(&number) else { return Ok(()) };
        *uses -= 1;
        if *uses > 0 {
            return Ok(());
        }
        let Written { entries, domain } = written.clone();
        self.uses.remove(&number);
        self.numbers.remove(&entries);
        wait_for_readers();
        self.erase(number, &entries)?;
        self.rooms.iter_mut().zip(counts(&entries)).for_each(|(room, count)| room.give(&domain, count));
        Ok(())
    }

    fn erase(&self, number: u32, entries: &Entries) -> Result<()> {
        self.rules.remove_all(&rules_of(number, &entries.rules).iter().map(|(key, _)| *key).collect::<Vec<_>>())?;
        self.ranges.remove_all(&ranges_of(number, &entries.ranges).iter().map(|(key, _)| *key).collect::<Vec<_>>())
    }
}

/// The highest identity number that an earlier process has left: new ones begin above it.
pub fn last_identity(pins: &Path) -> Result<u32> {
    let map = inbound::open(&service_pins::maps_path(pins)?, "identities")?;
    Ok(highest(&Table::new(map, "identities").entries()?))
}

/// Whether an earlier process has left pods with policies.
pub fn has_left(pins: &Path) -> Result<bool> {
    let map = inbound::open(&service_pins::maps_path(pins)?, "policed_pods")?;
    Ok(Table::<u64, policed>::new(map, "policed_pods").keys().next().is_some())
}

fn highest(named: &[(identity_key, identity)]) -> u32 {
    named.iter().map(|(_, known)| known.number).max().unwrap_or(0)
}

/// The number of a policy without entries.
const NO_RULES: u32 = 0;
/// The policies of one pod may take the room of a table divided by this: two ranges of all ports fit.
const PARTS: u32 = 8;
/// Addresses that are written in one call.
const CHUNK: usize = 1024;

/// How many entries of rules and of ranges.
fn counts(entries: &Entries) -> [usize; 2] {
    [entries.rules.len(), entries.ranges.len()]
}

fn rules_of(number: u32, from: &BTreeMap<RuleKey, u8>) -> Vec<(rule_key, u8)> {
    from.iter().map(|(key, said)| (rule_key_of(number, key), *said)).collect()
}

fn ranges_of(number: u32, from: &BTreeMap<(Gate, IpNet), u8>) -> Vec<(rule_range_key, u8)> {
    from.iter().map(|((gate, range), said)| (range_key_of(number, gate, *range), *said)).collect()
}

fn too_small(error: Error, what: &str) -> Error {
    Error::new(format!("the tables are too small for these {what}"), error)
}
