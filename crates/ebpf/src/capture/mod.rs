//! Capture: the tables of pods and what is attached in their namespaces.

pub(crate) mod inbound;
pub(crate) mod layout;
mod listeners;
mod netlink;
pub mod passthrough;
pub mod place;

use crate::error::{Error, Result};
use crate::layout::MapData;
use crate::netns;
use crate::plane::wait_for_readers;
use crate::services;
use crate::table::Table;
use layout::{
    LISTENER_PLACES, ROLES, Stage, listener_key, pod, pod_of, range_key, range_key_of, route, route_of, set_key,
    set_key_of,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sidestep_mesh::capture::rules::Rules;
use sidestep_mesh::capture::tables::{Entries, Place};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Every captured pod. Pods with the same rules, or the same routes, share the entries of them.
pub struct Captures {
    pins: PathBuf,
    pods: Table<u64, pod>,
    sets: Table<set_key, u8>,
    ranges: Table<range_key, route>,
    listeners: MapHandle,
    /// Namespaces of which we know what is written.
    known: BTreeMap<u64, Known>,
    /// Numbers of what is written.
    numbers: HashMap<Rc<Entries>, u32>,
    uses: BTreeMap<u32, (Rc<Entries>, usize)>,
    next: u32,
}

/// A pod as the tables have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace's cookie.
    pub netns: u64,
    pub outbound_port: u16,
    pub inbound_port: u16,
}

struct Known {
    namespace: PathBuf,
    rules: u32,
    place: u32,
    written: pod,
}

impl Captures {
    /// Those of an earlier life go on until they are put anew, or until [`Captures::complete`].
    pub fn open(pins: &Path) -> Result<Captures> {
        let mut captures = Captures::look(pins)?;
        captures.forget_dead()?;
        Ok(captures)
    }

    /// For whoever only looks.
    pub fn look(pins: &Path) -> Result<Captures> {
        let directory = services::maps_path(pins)?;
        let table = |name| inbound::open(&directory, name);
        let pods = Table::new(table("pods")?, "pods");
        let taken = pods.entries()?.into_iter().flat_map(|(_, pod): (u64, pod)| [pod.rules, pod.place]).max();
        Ok(Captures {
            pins: pins.into(),
            pods,
            sets: Table::new(table("sets")?, "sets"),
            ranges: Table::new(table("ranges")?, "ranges"),
            listeners: table("listeners")?,
            known: BTreeMap::new(),
            numbers: HashMap::new(),
            uses: BTreeMap::new(),
            next: taken.unwrap_or(0).wrapping_add(1),
        })
    }

    /// The pod in this namespace is captured by these rules from now on. Says how many listeners of its proxy were found.
    pub fn put(&mut self, namespace: &Path, cookie: u64, rules: &Rules, place: &Place) -> Result<()> {
        let added = place.addresses.iter().any(IpAddr::is_ipv6) && passthrough::add(namespace)?;
        let place = &if added { place::look(namespace)? } else { place.clone() };
        let (rules_number, place_number) = (self.number(rules.entries())?, self.number(place.entries(rules))?);
        let scalars = rules.scalars();
        let wanted = pod_of(&scalars, rules_number, place_number, Stage::Captured);
        let before = self.known.get(&cookie).map(|known| known.written);
        let done = match before {
            Some(before) if before.bytes() == wanted.bytes() => Ok(()),
            Some(before) if same_ports(&before, &wanted) => self.pods.put_all(&[(cookie, wanted)]),
            _ => {
                let preparing = pod_of(&scalars, rules_number, place_number, Stage::Preparing);
                self.begin(namespace, cookie, preparing, wanted)
            }
        };
        if let Err(error) = done {
            self.release([rules_number, place_number])?;
            return Err(error);
        }
        let known = Known { namespace: namespace.into(), rules: rules_number, place: place_number, written: wanted };
        match self.known.insert(cookie, known) {
            Some(old) => self.release([old.rules, old.place]),
            None => Ok(()),
        }
    }

    /// A pod that was captured by an earlier agent stays so meanwhile, by the listeners that are known.
    fn begin(&mut self, namespace: &Path, cookie: u64, preparing: pod, wanted: pod) -> Result<()> {
        inbound::install(&self.pins, namespace, cookie)?;
        match self.pods.get(&cookie)? {
            Some(before) if same_ports(&before, &wanted) => {}
            Some(_) => self.forget_listeners(cookie),
            None => {
                self.forget_listeners(cookie);
                self.pods.put_all(&[(cookie, preparing)])?;
            }
        }
        let done = listeners::find(&self.pins, namespace).and_then(|_| {
            self.forget_doubles(cookie);
            self.pods.put_all(&[(cookie, wanted)])
        });
        if done.is_err() && !self.known.contains_key(&cookie) {
            self.take_away(cookie)?;
        }
        done
    }

    /// The pod's connections are its own again; those that the proxy has stay there.
    pub fn remove(&mut self, cookie: u64) -> Result<()> {
        self.take_away(cookie)?;
        match self.known.remove(&cookie) {
            Some(known) => {
                // Another namespace may be there now.
                if netns::cookie_of(&known.namespace).is_ok_and(|found| found == cookie) {
                    passthrough::remove(&known.namespace)?;
                }
                self.release([known.rules, known.place])
            }
            None => Ok(()),
        }
    }

    fn take_away(&self, cookie: u64) -> Result<()> {
        self.pods.remove_all(&[cookie])?;
        self.forget_listeners(cookie);
        inbound::remove_unused(&self.pins, cookie)
    }

    /// Everything wanted has been put: what an earlier agent left besides goes.
    pub fn complete(&mut self) -> Result<()> {
        let left = self.pods()?.into_iter().map(|pod| pod.netns).chain(inbound::installed(&self.pins)?);
        let unwanted: BTreeSet<u64> = left.filter(|cookie| !self.known.contains_key(cookie)).collect();
        unwanted.into_iter().try_for_each(|cookie| self.take_away(cookie))?;
        self.sweep()
    }

    /// Erases what no pod refers to.
    pub fn sweep(&mut self) -> Result<()> {
        let pods = self.pods.entries()?;
        let used: BTreeSet<u32> =
            pods.iter().flat_map(|(_, pod)| [pod.rules, pod.place]).chain(self.uses.keys().copied()).collect();
        wait_for_readers();
        let sets = self.sets.entries()?.into_iter().map(|(key, _)| key).filter(|key| !used.contains(&key.owner));
        let ranges = self.ranges.entries()?.into_iter().map(|(key, _)| key).filter(|key| !used.contains(&key.owner));
        self.sets.remove_all(&sets.collect::<Vec<_>>())?;
        self.ranges.remove_all(&ranges.collect::<Vec<_>>())
    }

    /// Every pod in the tables, whoever has put it there.
    pub fn pods(&self) -> Result<Vec<Pod>> {
        let entries = self.pods.entries()?.into_iter();
        Ok(entries
            .map(|(netns, pod)| Pod { netns, outbound_port: pod.outbound_port, inbound_port: pod.inbound_port })
            .collect())
    }

    /// How many sockets of the pod's proxy listen for what comes in.
    pub fn listening(&self, netns: u64) -> usize {
        (0..LISTENER_PLACES).filter_map(|place| self.listener(listener_key { netns, role: ROLES[1], place })).count()
    }

    /// The cookie of the socket at this place.
    fn listener(&self, key: listener_key) -> Option<u64> {
        self.listeners.lookup(key.bytes(), MapFlags::ANY).ok().flatten().and_then(|cookie| u64::from_bytes(&cookie))
    }

    /// Namespaces that are captured, by their cookies.
    pub fn namespaces(&self) -> BTreeSet<u64> {
        self.known.keys().copied().collect()
    }

    /// Namespaces that have disappeared take their pods along.
    pub fn forget_dead(&mut self) -> Result<Vec<u64>> {
        let installed = inbound::installed(&self.pins)?;
        let dead: Vec<u64> = installed.into_iter().filter(|cookie| !inbound::is_alive(&self.pins, *cookie)).collect();
        dead.iter().try_for_each(|cookie| self.remove(*cookie))?;
        Ok(dead)
    }

    // --- entries ------------------------------------------------------------------------------------------------------

    /// The number under which these are written, now if need be.
    fn number(&mut self, entries: Entries) -> Result<u32> {
        if let Some(number) = self.numbers.get(&entries) {
            self.uses.get_mut(number).expect("it is in use").1 += 1;
            return Ok(*number);
        }
        let number = self.next;
        let (sets, ranges) = encode(number, &entries);
        let written = self.sets.put_all(&sets).and_then(|()| self.ranges.put_all(&ranges));
        if let Err(error) = written {
            self.erase(number, &entries)?;
            return Err(Error::new(error.doing, format!("{}; the tables are too small for these rules", error.cause)));
        }
        self.next = self.next.wrapping_add(1).max(1);
        let entries = Rc::new(entries);
        self.numbers.insert(Rc::clone(&entries), number);
        self.uses.insert(number, (entries, 1));
        Ok(number)
    }

    /// What nobody uses any more is erased once no program can be reading it.
    fn release(&mut self, numbers: [u32; 2]) -> Result<()> {
        for number in numbers {
            let Some((entries, uses)) = self.uses.get_mut(&number) else { continue };
            *uses -= 1;
            if *uses == 0 {
                let entries = Rc::clone(entries);
                self.uses.remove(&number);
                self.numbers.remove(&entries);
                wait_for_readers();
                self.erase(number, &entries)?;
            }
        }
        Ok(())
    }

    fn erase(&self, number: u32, entries: &Entries) -> Result<()> {
        let (sets, ranges) = encode(number, entries);
        self.sets.remove_all(&sets.iter().map(|(key, _)| *key).collect::<Vec<_>>())?;
        self.ranges.remove_all(&ranges.iter().map(|(key, _)| *key).collect::<Vec<_>>())
    }

    /// Listeners that were found once more keep their first place.
    fn forget_doubles(&self, netns: u64) {
        for role in ROLES {
            let mut met = BTreeSet::new();
            for key in (0..LISTENER_PLACES).map(|place| listener_key { netns, role, place }) {
                if self.listener(key).is_some_and(|cookie| !met.insert(cookie)) {
                    let _ = self.listeners.delete(key.bytes());
                }
            }
        }
    }

    /// Sockets stay what they are; they only are not found any more.
    fn forget_listeners(&self, netns: u64) {
        for role in ROLES {
            for place in 0..LISTENER_PLACES {
                let _ = self.listeners.delete(listener_key { netns, role, place }.bytes());
            }
        }
    }
}

type Encoded = (Vec<(set_key, u8)>, Vec<(range_key, route)>);

fn encode(number: u32, entries: &Entries) -> Encoded {
    let sets = entries.sets.iter().map(|(kind, value)| (set_key_of(number, *kind, *value), 1)).collect();
    let ranges = entries
        .ranges
        .iter()
        .map(|((kind, range), route)| (range_key_of(number, *kind, *range), route_of(route.as_ref())));
    (sets, ranges.collect())
}

fn same_ports(one: &pod, other: &pod) -> bool {
    (one.outbound_port, one.inbound_port) == (other.outbound_port, other.inbound_port)
}
