//! The tables of the splice programs that user space writes and reads.

use super::ports::Ports;
use super::reasons::REASONS;
use crate::error::{Doing, Error, Result};
use crate::layout::{MapData, pair, pair_key, switches, traffic};
use crate::table::Table;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::path::Path;

/// `enum decision`
const SPLICED: u32 = 1;
/// Index of the only element of a one-element array.
const ONLY: u32 = 0;

pub struct Tables {
    ports: MapHandle,
    settings: MapHandle,
    reasons: MapHandle,
    redirected: MapHandle,
    namespaces: Table<u64, u8>,
    pairs: Table<pair_key, pair>,
}

/// What was redirected from socket to socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What is installed, and its counters.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whether no further connection is spliced.
    pub paused: bool,
    /// Whether programs that block in their calls are spliced, too.
    pub blocking: bool,
    /// Ports whose connections are spliced.
    pub ports: Ports,
    /// Cookies of the namespaces. Empty: all.
    pub netns: Vec<u64>,
    /// Connections that are spliced now.
    pub connections: u64,
    /// What was redirected from socket to socket.
    pub redirected: Traffic,
    /// The count of each of [`REASONS`].
    pub reasons: Vec<(&'static str, u64)>,
}

impl Status {
    /// The count of the reason with this name.
    pub fn reason(&self, name: &str) -> u64 {
        self.reasons.iter().find(|(reason, _)| *reason == name).map_or(0, |(_, count)| *count)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("it has another layout")]
struct OtherForm;

impl Tables {
    /// Opens the tables that are pinned in this directory.
    pub fn open(directory: &Path) -> Result<Tables> {
        let open = |name: &str| MapHandle::from_pinned_path(directory.join(name)).at("open", &directory.join(name));
        Ok(Tables {
            ports: open("ports")?,
            settings: open("settings")?,
            reasons: open("reasons")?,
            redirected: open("redirected")?,
            namespaces: Table::new(open("namespaces")?, "namespaces"),
            pairs: Table::new(open("pairs")?, "pairs"),
        })
    }

    /// Writes the settings.
    pub fn fill(&self, ports: &Ports, netns: &[u64], blocking: bool) -> Result<()> {
        for (word, bits) in (0u32..).zip(ports.words()) {
            self.ports.update(word.bytes(), bits.bytes(), MapFlags::ANY).doing("map ports: put")?;
        }
        self.namespaces.put_all(&netns.iter().map(|cookie| (*cookie, 1)).collect::<Vec<_>>())?;
        let others: Vec<u64> = self.netns()?.into_iter().filter(|cookie| !netns.contains(cookie)).collect();
        let one_of_netns = u32::from(!netns.is_empty());
        self.put_switches(&switches { paused: 0, removed: 0, one_of_netns, blocking: u32::from(blocking) })?;
        self.namespaces.remove_all(&others)
    }

    pub fn switch(&self, change: impl FnOnce(&mut switches)) -> Result<()> {
        let mut switches = self.switches()?;
        change(&mut switches);
        self.put_switches(&switches)
    }

    pub fn status(&self) -> Result<Status> {
        let switches = self.switches()?;
        let pairs = self.pairs.entries()?;
        Ok(Status {
            paused: switches.paused != 0,
            blocking: switches.blocking != 0,
            ports: self.ports()?,
            netns: if switches.one_of_netns != 0 { self.netns()? } else { Vec::new() },
            connections: pairs.iter().filter(|(_, pair)| pair.decision == SPLICED).count() as u64,
            redirected: self.redirected()?,
            reasons: self.reasons()?,
        })
    }

    fn switches(&self) -> Result<switches> {
        let found = self.settings.lookup(ONLY.bytes(), MapFlags::ANY).doing("map settings: look up")?;
        let found = found.as_deref().and_then(switches::from_bytes);
        found.ok_or_else(|| Error::new("map settings", OtherForm))
    }

    fn put_switches(&self, switches: &switches) -> Result<()> {
        self.settings.update(ONLY.bytes(), switches.bytes(), MapFlags::ANY).doing("map settings: put")
    }

    fn netns(&self) -> Result<Vec<u64>> {
        Ok(self.namespaces.entries()?.into_iter().map(|(cookie, _)| cookie).collect())
    }

    fn ports(&self) -> Result<Ports> {
        let word = |index: u32| {
            let found = self.ports.lookup(index.bytes(), MapFlags::ANY).doing("map ports: look up")?;
            Ok(found.as_deref().and_then(u64::from_bytes).unwrap_or(0))
        };
        (0..self.ports.max_entries()).map(word).collect::<Result<_>>().map(Ports::from_words)
    }

    fn redirected(&self) -> Result<Traffic> {
        let each: Vec<traffic> = per_cpu(&self.redirected, ONLY)?;
        let sum = |field: fn(&traffic) -> u64| each.iter().map(field).sum();
        Ok(Traffic { messages: sum(|one| one.messages), bytes: sum(|one| one.bytes) })
    }

    fn reasons(&self) -> Result<Vec<(&'static str, u64)>> {
        let count = |index: u32| Ok(per_cpu::<u64>(&self.reasons, index)?.into_iter().sum());
        (0..).zip(REASONS).map(|(index, (name, _))| Ok((name, count(index)?))).collect()
    }
}

/// The element's value for each processor.
fn per_cpu<V: MapData>(map: &MapHandle, index: u32) -> Result<Vec<V>> {
    let found = map.lookup_percpu(index.bytes(), MapFlags::ANY).doing("look up a counter")?;
    Ok(found.into_iter().flatten().filter_map(|bytes| V::from_bytes(&bytes)).collect())
}
