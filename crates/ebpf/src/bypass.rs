//! Where connections go around the proxies.

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

/// What is written goes on when nobody runs, and is found again.
pub struct Bypasses {
    bypasses: Table<frontend_key, u8>,
    required: Table<u64, u8>,
    written: BTreeMap<FrontendKey, BypassFlags>,
}

impl Bypasses {
    /// The tables of the programs that are installed there.
    pub fn open(pins: &Path) -> Result<Bypasses> {
        let directory = service_pins::maps_path(pins)?;
        let bypasses = Table::new(open(&directory, "bypasses")?, "bypasses");
        let left: Vec<(frontend_key, u8)> = bypasses.entries()?;
        let written = left.iter().filter_map(|(key, flags)| Some((to_key(key)?, to_flags(*flags)))).collect();
        Ok(Bypasses { bypasses, required: Table::new(open(&directory, "proxy_required")?, "proxy_required"), written })
    }

    /// At these addresses, but not for pods in these namespaces, from now on.
    ///
    /// What is sent plainly is understood by a server's proxy if it is allowed to; what a client's proxy sends is not
    /// understood by a program. So clients come first where a way opens, and servers where one closes.
    pub fn set(&mut self, wanted: &BTreeMap<FrontendKey, BypassFlags>, required: &BTreeSet<u64>) -> Result<()> {
        let before = self.required();
        self.required.put_all(&required.difference(&before).map(|cookie| (*cookie, 1)).collect::<Vec<_>>())?;
        self.write(wanted, |old, new| BypassFlags { inbound: old.inbound && new.inbound, ..old })?;
        self.write(wanted, |old, new| BypassFlags { inbound: old.inbound, ..new })?;
        self.write(wanted, |_, new| new)?;
        self.required.remove_all(&before.difference(required).copied().collect::<Vec<_>>())
    }

    /// One step of a change, for all addresses.
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

    /// How the programs treat connections to this address.
    pub fn flags(&self, key: &FrontendKey) -> BypassFlags {
        self.written.get(key).copied().unwrap_or_default()
    }

    /// Whether the namespace with this cookie takes connections through its proxy only.
    pub fn is_required(&self, netns: u64) -> Result<bool> {
        Ok(self.required.get(&netns)?.is_some())
    }

    /// Namespaces of pods that are never led around their proxy.
    pub fn required(&self) -> BTreeSet<u64> {
        self.required.keys().collect()
    }

    /// One of them, from now on.
    pub fn require(&self, netns: u64) -> Result<()> {
        self.required.put_all(&[(netns, 1)])
    }

    /// The addresses at which connections are led around proxies, as they were written.
    pub fn written(&self) -> &BTreeMap<FrontendKey, BypassFlags> {
        &self.written
    }

    /// Addresses of which the tables say something else than was written.
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
