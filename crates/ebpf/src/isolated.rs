//! Addresses of pods that policies for incoming traffic select: the program for packets keeps the source of what is sent to them.

use crate::capture::Fill;
use crate::capture::inbound::open;
use crate::error::Result;
use crate::layout::{address, address_of, to_address};
use crate::service_pins;
use crate::table::Table;
use sidestep_mesh::address::Address;
use std::collections::BTreeSet;
use std::path::Path;

/// The entries stay in force when no process runs, and after a new process has begun, until [`Isolated::keep_only`].
pub struct Isolated {
    table: Table<address, u8>,
    /// By this process.
    written: BTreeSet<Address>,
}

impl Isolated {
    /// Opens the table of the installed programs.
    pub fn open(pins: &Path) -> Result<Isolated> {
        let map = open(&service_pins::maps_path(pins)?, "isolated_addresses")?;
        Ok(Isolated { table: Table::new(map, "isolated_addresses"), written: BTreeSet::new() })
    }

    /// Adds addresses.
    pub fn add(&mut self, wanted: &BTreeSet<Address>) -> Result<()> {
        let new: Vec<Address> = wanted.difference(&self.written).copied().collect();
        self.table.put_all(&new.iter().map(|at| (address_of(*at), 1)).collect::<Vec<_>>())?;
        self.written.extend(new);
        Ok(())
    }

    /// Removes all others, also those that an earlier process has left.
    pub fn keep_only(&mut self, wanted: &BTreeSet<Address>) -> Result<()> {
        self.written.retain(|at| wanted.contains(at));
        self.table.retain(|at| wanted.contains(&to_address(at)))
    }

    /// Addresses that were written and are not there.
    pub fn missing(&self) -> Result<BTreeSet<Address>> {
        let found: BTreeSet<Address> = self.table.keys().map(|at| to_address(&at)).collect();
        Ok(self.written.difference(&found).copied().collect())
    }

    /// How full the table is, by what this process has added.
    pub fn fill(&self) -> Fill {
        Fill { table: "isolated_addresses", used: self.written.len(), room: self.table.room() }
    }
}
