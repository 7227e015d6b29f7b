//! The addresses at which connections bypass the proxies.

use crate::capture::Fill;
use crate::capture::inbound::open;
use crate::error::Result;
use crate::layout::{frontend_key, key_of, to_key};
use crate::service_pins;
use crate::table::Table;
use sidestep_mesh::bypass::BypassFlags;
use sidestep_mesh::plane::FrontendKey;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The entries stay in force when no process runs, and a new process finds them again.
pub struct Bypasses {
    bypasses: Table<frontend_key, u8>,
    required: Table<u64, u8>,
    written: BTreeMap<FrontendKey, BypassFlags>,
}

impl Bypasses {
    /// Opens the tables of the installed programs.
    pub fn open(pins: &Path) -> Result<Bypasses> {
        let directory = service_pins::maps_path(pins)?;
        let bypasses = Table::new(open(&directory, "bypasses")?, "bypasses");
        let left: Vec<(frontend_key, u8)> = bypasses.entries()?;
        let written = left.iter().filter_map(|(key, flags)| Some((to_key(key)?, to_flags(*flags)))).collect();
        Ok(Bypasses { bypasses, required: Table::new(open(&directory, "proxy_required")?, "proxy_required"), written })
    }

    /// Sets the bypassed addresses, and the namespaces of pods that require their proxy.
    ///
    /// A server's proxy understands plain text if its policy permits it, but a server program does not understand what a client's
    /// proxy sends. So when a bypass opens, clients bypass first, and when it closes, servers stop first.
    pub fn set(&mut self, wanted: &BTreeMap<FrontendKey, BypassFlags>, required: &BTreeSet<u64>) -> Result<()> {
        let before = self.required();
        self.required.put_all(&required.difference(&before).map(|cookie| (*cookie, 1)).collect::<Vec<_>>())?;
        self.write(wanted, |old, new| BypassFlags { inbound: old.inbound && new.inbound, ..old })?;
        self.write(wanted, |old, new| BypassFlags { inbound: old.inbound, ..new })?;
        self.write(wanted, |_, new| new)?;
        self.required.remove_all(&before.difference(required).copied().collect::<Vec<_>>())
    }

    /// Writes one step of a change, for all addresses.
    fn write(
        &mut self,
        wanted: &BTreeMap<FrontendKey, BypassFlags>,
        step: impl Fn(BypassFlags, BypassFlags) -> BypassFlags,
    ) -> Result<()> {
        let keys: BTreeSet<FrontendKey> = self.written.keys().chain(wanted.keys()).copied().collect();
        for key in keys {
            let (old, new) = (self.flags(&key), wanted.get(&key).copied().unwrap_or_default());
            let next = step(old, new);
            if next == BypassFlags::default() && self.written.contains_key(&key) {
                self.bypasses.remove_all(&[key_of(&key)])?;
                self.written.remove(&key);
            } else if next != old {
                self.bypasses.put_all(&[(key_of(&key), flags_of(next))])?;
                self.written.insert(key, next);
            }
        }
        Ok(())
    }

    /// The flags with which the programs treat connections to this address.
    pub fn flags(&self, key: &FrontendKey) -> BypassFlags {
        self.written.get(key).copied().unwrap_or_default()
    }

    /// Whether the namespace with this cookie requires its proxy.
    pub fn is_required(&self, netns: u64) -> Result<bool> {
        Ok(self.required.get(&netns)?.is_some())
    }

    /// Namespaces of pods that require their proxy.
    pub fn required(&self) -> BTreeSet<u64> {
        self.required.keys().collect()
    }

    /// Adds the namespace of a pod that requires its proxy.
    pub fn require(&self, netns: u64) -> Result<()> {
        self.required.put_all(&[(netns, 1)])
    }

    /// The bypassed addresses, as this process has written them.
    pub fn written(&self) -> &BTreeMap<FrontendKey, BypassFlags> {
        &self.written
    }

    /// Addresses for which the tables differ from what was written.
    pub fn differences(&self) -> Result<BTreeSet<FrontendKey>> {
        let found: BTreeMap<FrontendKey, BypassFlags> =
            self.bypasses.entries()?.iter().filter_map(|(key, flags)| Some((to_key(key)?, to_flags(*flags)))).collect();
        let all: BTreeSet<FrontendKey> = found.keys().chain(self.written.keys()).copied().collect();
        Ok(all.into_iter().filter(|key| found.get(key) != self.written.get(key)).collect())
    }

    /// How full the tables are.
    pub fn fill(&self) -> Vec<Fill> {
        let fill = |table, used, room| Fill { table, used, room };
        let required = self.required.keys().count();
        vec![
            fill("bypasses", self.written.len(), self.bypasses.room()),
            fill("proxy_required", required, self.required.room()),
        ]
    }
}

/// `enum bypass_flags`
const OUTBOUND: u8 = 1 << 0;
const INBOUND: u8 = 1 << 1;

fn flags_of(flags: BypassFlags) -> u8 {
    let bits = [(OUTBOUND, flags.outbound), (INBOUND, flags.inbound)];
    bits.into_iter().filter(|(_, set)| *set).fold(0, |all, (bit, _)| all | bit)
}

fn to_flags(flags: u8) -> BypassFlags {
    BypassFlags { outbound: flags & OUTBOUND != 0, inbound: flags & INBOUND != 0 }
}
