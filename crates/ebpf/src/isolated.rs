//! Addresses of pods that policies for incoming traffic select: the program for packets keeps the source of what is sent to them.

use crate::capture::Fill;
use crate::capture::inbound::open;
use crate::error::Result;
use crate::layout::{address, address_of, to_address};
use crate::service_pins;
use crate::table::Table;
use sidestep_mesh::address::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The entries stay in force when no process runs, and after a new process has begun, until [`Isolated::remove_strangers`].
pub struct Isolated {
    table: Table<address, u8>,
    /// By the cookie of the pod's network namespace.
    pods: BTreeMap<u64, BTreeSet<Address>>,
}

impl Isolated {
    /// Opens the table of the installed programs.
    pub fn open(pins: &Path) -> Result<Isolated> {
        let map = open(&service_pins::maps_path(pins)?, "isolated_addresses")?;
        Ok(Isolated { table: Table::new(map, "isolated_addresses"), pods: BTreeMap::new() })
    }

    /// Sets a pod's addresses. Call it before the pod's policies are in force.
    pub fn put(&mut self, cookie: u64, wanted: BTreeSet<Address>) -> Result<()> {
        let had = self.pods.get(&cookie).cloned().unwrap_or_default();
        if wanted == had {
            return Ok(());
        }
        let new: Vec<_> = wanted.difference(&had).map(|at| (address_of(*at), 1)).collect();
        self.table.put_all(&new)?;
        let gone = had.difference(&wanted).copied().collect();
        self.pods.insert(cookie, wanted);
        self.erase(&gone)
    }

    /// Call it when the pod's policies are no longer in force.
    pub fn remove(&mut self, cookie: u64) -> Result<()> {
        let Some(had) = self.pods.remove(&cookie) else { return Ok(()) };
        let erased = self.erase(&had);
        if erased.is_err() {
            self.pods.insert(cookie, had);
        }
        erased
    }

    /// For a moment two pods may have one address: one that ends, and the next one.
    fn erase(&self, gone: &BTreeSet<Address>) -> Result<()> {
        let stay = self.all();
        self.table.remove_all(&gone.difference(&stay).map(|at| address_of(*at)).collect::<Vec<_>>())
    }

    fn all(&self) -> BTreeSet<Address> {
        self.pods.values().flatten().copied().collect()
    }

    /// Removes what this process has not put.
    pub fn remove_strangers(&mut self) -> Result<()> {
        let stay = self.all();
        self.table.retain(|at| stay.contains(&to_address(at)))
    }

    /// Addresses that were put and are not there, and those that are there and were not put.
    pub fn differences(&self) -> Result<[BTreeSet<Address>; 2]> {
        let (put, found): (_, BTreeSet<_>) = (self.all(), self.table.keys().map(|at| to_address(&at)).collect());
        Ok([&put - &found, &found - &put])
    }

    /// How full the table is, by what this process has put.
    pub fn fill(&self) -> Fill {
        Fill { table: "isolated_addresses", used: self.all().len(), room: self.table.room() }
    }
}
