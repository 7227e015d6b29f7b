//! Connections on their way to a proxy, as the programs keep them: their number, and what must not be left of them.

use super::inbound::open;
use super::layout::{pending_entry, redirected_flow, usage};
use crate::error::Result;
use crate::layout::MapData;
use crate::service_pins;
use crate::table::Table;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::Path;

/// A SYN is repeated for 127 s, unless a program wants more. What is older than this is nobody's.
const OLD_NS: u64 = 300 * 1_000_000_000;

pub struct Pending {
    entries: MapHandle,
    usages: Table<u64, usage>,
}

impl Pending {
    pub fn open(pins: &Path) -> Result<Pending> {
        let directory = service_pins::maps_path(pins)?;
        Ok(Pending { entries: open(&directory, "pending")?, usages: Table::new(open(&directory, "usages")?, "usages") })
    }

    /// Programs leave nothing behind. Should they have, be it that some were not attached for a while, it goes here, and each
    /// pod's number is what is there.
    pub fn repair(&self) -> Result<()> {
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let mut counts: BTreeMap<u64, i64> = self.usages.keys().map(|netns| (netns, 0)).collect();
        for key in self.entries.keys() {
            let Some(netns) = redirected_flow::from_bytes(&key).map(|flow| flow.netns) else { continue };
            let found = self.entries.lookup(&key, MapFlags::ANY).ok().flatten();
            let Some(entry) = found.as_deref().and_then(pending_entry::from_bytes) else { continue };
            if now.saturating_sub(entry.since_ns) > OLD_NS {
                let _ = self.entries.delete(&key); // it may just have been taken
            } else {
                *counts.entry(netns).or_default() += 1;
            }
        }
        // A connection that begins or ends just now is counted wrongly until the next repair, by one. Programs make a number
        // that is not there.
        let (used, unused): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(_, pending)| *pending > 0);
        self.usages.remove_all(&unused.into_iter().map(|(netns, _)| netns).collect::<Vec<_>>())?;
        self.usages.add_all(&used.into_iter().map(|(netns, pending)| (netns, usage { pending })).collect::<Vec<_>>())
    }

    /// The pod is no more.
    pub fn remove(&self, netns: u64) -> Result<()> {
        self.usages.remove_all(&[netns])
    }

    pub fn count(&self) -> usize {
        self.entries.keys().count()
    }

    pub fn room(&self) -> u32 {
        self.entries.max_entries()
    }
}
