//! Capture: the tables of pods, and the programs that are attached in their namespaces.

pub mod changes;
mod ending;
pub(crate) mod inbound;
pub(crate) mod layout;
mod listeners;
mod numbers;
pub mod passthrough;
mod pending;
pub mod pod_network;
mod template;
mod underway;

use crate::error::Result;
use crate::layout::MapData;
use crate::service_pins;
use crate::table::Table;
use ending::{Ending, Numbered};
use inbound::Installer;
use layout::{inert, is_inert, pod, pod_of};
use listeners::Listeners;
use numbers::Numbers;
use pending::Pending;
use sidestep_mesh::capture::rules::Rules;
use sidestep_mesh::capture::tables::PodNetwork;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// All captured pods.
pub struct Captures {
    pins: PathBuf,
    pods: Table<u64, pod>,
    numbers: Numbers,
    listeners: Listeners,
    pending: Pending,
    installer: Installer,
    /// Namespaces whose entries this process has written.
    known: BTreeMap<u64, Known>,
    ending: Ending,
}

/// A pod, as the tables have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Cookie of its network namespace.
    pub netns: u64,
    /// Port of the proxy for outbound connections.
    pub outbound_port: u16,
    /// Port of the proxy for inbound connections.
    pub inbound_port: u16,
}

/// How full a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Name of the table.
    pub table: &'static str,
    /// Entries in use.
    pub used: usize,
    /// Capacity in entries.
    pub room: u32,
}

struct Known {
    numbers: Numbered,
    written: pod,
}

impl Captures {
    /// Opens the tables. Pods of an earlier process stay captured until they are put again, or until [`Captures::complete`].
    pub fn open(pins: &Path) -> Result<Captures> {
        let mut captures = Captures::open_read_only(pins)?;
        captures.remove_dead()?;
        captures.pending.repair()?;
        Ok(captures)
    }

    /// Opens the tables for reading.
    pub fn open_read_only(pins: &Path) -> Result<Captures> {
        let directory = service_pins::maps_path(pins)?;
        let table = |name| inbound::open(&directory, name);
        let pods = Table::new(table("pods")?, "pods");
        Ok(Captures {
            pins: pins.into(),
            numbers: Numbers::new(Table::new(table("sets")?, "sets"), Table::new(table("ranges")?, "ranges")),
            pods,
            listeners: Listeners::new(table("listeners")?),
            pending: Pending::open(pins)?,
            installer: Installer::new(pins),
            known: BTreeMap::new(),
            ending: Ending::default(),
        })
    }

    /// Loads what all pods share, so that the first pod need not wait for that.
    pub fn prepare(&mut self) -> Result<()> {
        self.installer.prepare()?;
        self.listeners.prepare(&self.pins)
    }

    /// Captures the pod in this namespace by these rules.
    pub fn put(&mut self, namespace: &Path, cookie: u64, rules: &Rules, network: &PodNetwork) -> Result<()> {
        self.put_deferred(namespace, cookie, "", rules, network)?;
        self.collect_garbage()
    }

    /// As `put`, but entries that it replaces stay until [`Captures::collect_garbage`], which waits for the programs that still read them.
    /// `domain`: the trust domain whose pods together take no more than their share of the tables.
    pub fn put_deferred(
        &mut self,
        namespace: &Path,
        cookie: u64,
        domain: &str,
        rules: &Rules,
        network: &PodNetwork,
    ) -> Result<()> {
        let is_wanted =
            network.addresses.iter().any(IpAddr::is_ipv6) && !network.addresses.contains(&passthrough::ADDRESS);
        let added = is_wanted && passthrough::add(namespace)?;
        let network = &if added { pod_network::read(namespace)? } else { network.clone() };
        if !self.numbers.has_begun() {
            self.numbers.begin(self.pods.entries()?.into_iter().flat_map(|(_, pod)| [pod.rules, pod.network]));
        }
        let rules_number = self.numbers.claim(rules.entries(), domain)?;
        let network_number = match self.numbers.claim(network.entries(rules), domain) {
            Ok(number) => number,
            Err(error) => {
                self.numbers.release([rules_number]);
                return Err(error);
            }
        };
        let numbers = [rules_number, network_number];
        let wanted = pod_of(&rules.scalars(), rules_number, network_number);
        let before = self.known.get(&cookie).map(|known| known.written);
        let done = match before {
            Some(before) if before.bytes() == wanted.bytes() => Ok(()),
            Some(before) if same_ports(&before, &wanted) => self.pods.put_all(&[(cookie, wanted)]),
            _ => self.begin(namespace, cookie, wanted),
        };
        if let Err(error) = done {
            self.numbers.release(numbers);
            return Err(error);
        }
        let old = self.known.insert(cookie, Known { numbers, written: wanted }).map(|old| old.numbers);
        for numbers in old.into_iter().chain(self.ending.remove(cookie)) {
            self.numbers.release(numbers);
        }
        Ok(())
    }

    /// A pod that is captured already, perhaps by an earlier agent, stays captured throughout, even if this fails.
    fn begin(&mut self, namespace: &Path, cookie: u64, wanted: pod) -> Result<()> {
        let before = self.pods.get(&cookie)?;
        let done = self.exchange(namespace, cookie, before.as_ref(), wanted);
        if done.is_err() && before.is_none() {
            self.remove_entry(cookie)?;
        }
        done
    }

    fn exchange(&mut self, namespace: &Path, cookie: u64, before: Option<&pod>, wanted: pod) -> Result<()> {
        self.installer.install(namespace, cookie)?;
        // The search for listeners uses the ports in the table, so the pod's entry is written first.
        match before {
            None => {
                self.pods.add_all(&[(cookie, inert(wanted))])?;
                self.listeners.find(&self.pins, namespace)?;
                self.pods.put_all(&[(cookie, wanted)])
            }
            Some(before) if same_ports(before, &wanted) => {
                self.listeners.renew(&self.pins, namespace, cookie)?;
                self.pods.put_all(&[(cookie, wanted)])
            }
            Some(_) => {
                self.pods.put_all(&[(cookie, wanted)])?;
                self.listeners.renew(&self.pins, namespace, cookie)
            }
        }
    }

    /// Finds listeners that were created while the programs that record them were not attached.
    pub fn renew_listeners(&mut self, namespace: &Path, cookie: u64) -> Result<()> {
        if self.known.contains_key(&cookie) { self.listeners.renew(&self.pins, namespace, cookie) } else { Ok(()) }
    }

    /// Ends the capture of the pod; connections that the proxy has accepted stay with it. Waits for the connections under way to
    /// the proxy, see [`ending`].
    pub fn remove(&mut self, cookie: u64) -> Result<()> {
        self.remove_deferred(cookie)?;
        self.wait_for_ends()?;
        self.collect_garbage()
    }

    /// As `remove`, for all pods, including those of earlier processes.
    pub fn remove_all(&mut self) -> Result<()> {
        self.pods.keys().collect::<Vec<_>>().into_iter().try_for_each(|cookie| self.remove_deferred(cookie))?;
        self.wait_for_ends()
    }

    /// As `remove`, but without the waits: [`Captures::collect_garbage`] completes the removal once nothing is under way to the proxy, see
    /// [`Captures::next_end`].
    pub fn remove_deferred(&mut self, cookie: u64) -> Result<()> {
        match self.pods.get(&cookie)?.filter(|_| self.is_alive(cookie)) {
            Some(found) => {
                self.pods.put_all(&[(cookie, inert(found))])?;
                self.ending.begin(cookie, self.known.remove(&cookie).map(|known| known.numbers));
                Ok(())
            }
            None => {
                self.remove_entry(cookie)?;
                if let Some(known) = self.known.remove(&cookie) {
                    self.numbers.release(known.numbers);
                }
                Ok(())
            }
        }
    }

    /// When [`Captures::collect_garbage`] is due for a pod that is being removed.
    pub fn next_end(&self) -> Option<Instant> {
        self.ending.next()
    }

    /// Waits until nothing is under way to the proxy of any pod that is being removed.
    fn wait_for_ends(&mut self) -> Result<()> {
        while let Some(due) = self.next_end() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.end_pods()?;
        }
        Ok(())
    }

    /// Completes the removal of pods that have nothing under way any more. A failed one is tried again.
    fn end_pods(&mut self) -> Result<()> {
        let ports = |cookie| self.pods.get(&cookie).ok()?.map(|pod| [pod.outbound_port, pod.inbound_port]);
        let over = self.ending.poll(&self.pins, ports);
        if over.is_empty() {
            return Ok(());
        }
        let inodes = over.iter().filter_map(|cookie| inbound::inode(&self.pins, *cookie)).collect();
        let mut has_strangers = false;
        for cookie in over {
            self.remove_entry(cookie)?;
            match self.ending.remove(cookie) {
                Some(numbers) => self.numbers.release(numbers),
                None => has_strangers = true,
            }
        }
        passthrough::remove_in(inodes)?;
        if has_strangers { self.sweep() } else { Ok(()) }
    }

    fn remove_entry(&self, cookie: u64) -> Result<()> {
        self.pods.remove_all(&[cookie])?;
        self.listeners.remove(cookie);
        self.pending.remove(cookie)?;
        inbound::remove_unused(&self.pins, cookie)
    }

    /// Completes removals that are due, and erases what this process has put and no pod refers to any more.
    pub fn collect_garbage(&mut self) -> Result<()> {
        self.end_pods()?;
        self.numbers.collect_garbage()
    }

    /// How many sets of rules or routes wait for `collect_garbage`.
    pub fn garbage(&self) -> usize {
        self.numbers.retired()
    }

    /// Call when everything wanted has been put: removes what an earlier agent has left besides.
    pub fn complete(&mut self) -> Result<()> {
        self.complete_but(&BTreeSet::new())
    }

    /// As `complete`, but these namespaces keep what they have: they could not be put.
    pub fn complete_but(&mut self, wanted: &BTreeSet<u64>) -> Result<()> {
        let left = self.pods()?.into_iter().map(|pod| pod.netns).chain(inbound::installed(&self.pins)?);
        let is_unwanted = |cookie: &u64| !self.known.contains_key(cookie) && !wanted.contains(cookie);
        let unwanted: BTreeSet<u64> = left.filter(is_unwanted).collect();
        unwanted.into_iter().try_for_each(|cookie| self.remove_deferred(cookie))?;
        self.sweep()
    }

    /// Erases all entries that no pod refers to.
    pub fn sweep(&mut self) -> Result<()> {
        let pods = self.pods.entries()?;
        self.numbers.sweep(pods.iter().flat_map(|(_, pod)| [pod.rules, pod.network]))
    }

    /// All captured pods in the tables, whichever process has put them.
    pub fn pods(&self) -> Result<Vec<Pod>> {
        let entries = self.pods.entries()?.into_iter();
        Ok(entries
            .filter(|(_, pod)| !is_inert(pod))
            .map(|(netns, pod)| Pod { netns, outbound_port: pod.outbound_port, inbound_port: pod.inbound_port })
            .collect())
    }

    /// Whether this namespace is captured.
    pub fn is_captured(&self, netns: u64) -> Result<bool> {
        self.pods.get(&netns).map(|found| found.is_some_and(|pod| !is_inert(&pod)))
    }

    /// How many sockets of the pod's proxy listen for inbound connections.
    pub fn listening(&self, netns: u64) -> usize {
        self.listeners.of(netns)[1]
    }

    /// For each pod: how many sockets listen for outbound and for inbound connections.
    pub fn all_listening(&self) -> HashMap<u64, [usize; 2]> {
        self.listeners.all()
    }

    /// Cookies of the namespaces that this process has captured.
    pub fn namespaces(&self) -> BTreeSet<u64> {
        self.known.keys().copied().collect()
    }

    /// How full the tables are that this process fills.
    pub fn fill(&self) -> Vec<Fill> {
        let pods = [("pods", self.known.len(), self.pods.room())];
        let all = pods.into_iter().chain(self.numbers.fill());
        all.map(|(table, used, room)| Fill { table, used, room }).collect()
    }

    /// How full the tables are that programs fill. Counts their entries one by one.
    pub fn fill_by_others(&self) -> Vec<Fill> {
        let listeners = self.listeners.all().values().flatten().sum();
        vec![
            Fill { table: "pending", used: self.pending.count(), room: self.pending.room() },
            Fill { table: "listeners", used: listeners, room: self.listeners.room() },
        ]
    }

    /// Removes the pods of namespaces that have ended.
    pub fn remove_dead(&mut self) -> Result<Vec<u64>> {
        let installed = inbound::installed(&self.pins)?;
        let dead: Vec<u64> = installed.into_iter().filter(|cookie| !self.is_alive(*cookie)).collect();
        dead.iter().try_for_each(|cookie| self.remove_deferred(*cookie))?;
        self.collect_garbage()?;
        Ok(dead)
    }

    /// Whether this captured namespace still exists.
    pub fn is_alive(&self, netns: u64) -> bool {
        inbound::is_alive(&self.pins, netns)
    }

    /// Where the tables differ from what was written: namespace and difference. `strangers`: pods that this process has not put
    /// are differences, too.
    pub fn differences(&self, strangers: bool) -> Result<Vec<(u64, &'static str)>> {
        let found: BTreeMap<u64, pod> = self.pods.entries()?.into_iter().collect();
        let damaged = self.numbers.damaged()?;
        let mut differences = Vec::new();
        for (cookie, known) in &self.known {
            match found.get(cookie) {
                None => differences.push((*cookie, "is not in the tables")),
                Some(pod) if pod.bytes() != known.written.bytes() => {
                    differences.push((*cookie, "the tables say something else than was written"));
                }
                Some(_) => {}
            }
            if damaged.contains(&known.numbers[0]) {
                differences.push((*cookie, "its rules are not in the tables as they were written"));
            }
            if damaged.contains(&known.numbers[1]) {
                differences.push((*cookie, "its routes are not in the tables as they were written"));
            }
            if !self.is_alive(*cookie) {
                differences.push((*cookie, "no program is attached in its namespace"));
            }
        }
        let others =
            found.iter().filter(|(cookie, pod)| strangers && !is_inert(pod) && !self.known.contains_key(cookie));
        differences.extend(others.map(|(cookie, _)| (*cookie, "is in the tables, and in no file")));
        Ok(differences)
    }
}

/// Inodes of the namespaces in which a program is attached.
pub(crate) fn inodes(pins: &Path) -> Result<BTreeSet<u64>> {
    Ok(inbound::installed(pins)?.into_iter().filter_map(|cookie| inbound::inode(pins, cookie)).collect())
}

fn same_ports(one: &pod, other: &pod) -> bool {
    (one.outbound_port, one.inbound_port) == (other.outbound_port, other.inbound_port)
}
