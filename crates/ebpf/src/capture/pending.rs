//! Connections on their way to a proxy, as the programs record them: their entries, and their number for each pod.

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

/// A SYN is retransmitted for 127 s, unless a program sets more. An older entry is a leftover.
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

    /// Removes leftover entries and corrects each pod's number. Normally there is nothing to do; but programs that were not
    /// attached for a while may have missed the end of a connection.
    pub fn repair(&self) -> Result<()> {
        let now = clock_gettime(ClockId::Monotonic);
        let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let mut counts: BTreeMap<u64, i64> = self.usages.keys().map(|netns| (netns, 0)).collect();
        for key in self.entries.keys() {
            let Some(netns) = redirected_flow::from_bytes(&key).map(|flow| flow.netns) else { continue };
            let found = self.entries.lookup(&key, MapFlags::ANY).ok().flatten();
            let Some(entry) = found.as_deref().and_then(pending_entry::from_bytes) else { continue };
            if now.saturating_sub(entry.since_ns) > OLD_NS {
                let _ = self.entries.delete(&key); // the proxy may just have taken it
            } else {
                *counts.entry(netns).or_default() += 1;
            }
        }
        // A connection that begins or ends at this moment makes the number wrong by one until the next repair. Programs create
        // missing numbers.
        let (used, unused): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(_, pending)| *pending > 0);
        self.usages.remove_all(&unused.into_iter().map(|(netns, _)| netns).collect::<Vec<_>>())?;
        self.usages.add_all(&used.into_iter().map(|(netns, pending)| (netns, usage { pending })).collect::<Vec<_>>())
    }

    /// Removes the number of a pod that is gone.
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
