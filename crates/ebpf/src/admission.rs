//! Which network namespaces may communicate on an armed node.

use crate::capture::inbound::open;
use crate::error::Result;
use crate::service_pins;
use crate::table::Table;
use std::collections::BTreeSet;
use std::path::Path;

/// Both tables stay when the process that writes them ends.
pub struct Admission {
    arming: Table<u32, u32>,
    admitted: Table<u64, u8>,
}

impl Admission {
    /// Opens the tables of the installed programs.
    pub fn open(pins: &Path) -> Result<Admission> {
        let directory = service_pins::maps_path(pins)?;
        Ok(Admission {
            arming: Table::new(open(&directory, "arming")?, "arming"),
            admitted: Table::new(open(&directory, "admitted")?, "admitted"),
        })
    }

    /// Arms the node: namespaces that are not admitted may communicate with nobody. `false` disarms it.
    pub fn arm(&self, armed: bool) -> Result<()> {
        // No wait for readers: an array's element is written in place.
        self.arming.add_all(&[(0, armed.into())])
    }

    /// Whether the node is armed.
    pub fn is_armed(&self) -> Result<bool> {
        Ok(self.arming.get(&0)?.is_some_and(|word| word != 0))
    }

    /// Admits the namespace with this cookie.
    pub fn admit(&self, cookie: u64) -> Result<()> {
        if self.is_admitted(cookie)? { Ok(()) } else { self.admitted.add_all(&[(cookie, 1)]) }
    }

    /// Withdraws the admission of the namespace with this cookie.
    pub fn dismiss(&self, cookie: u64) -> Result<()> {
        self.admitted.remove_all(&[cookie])
    }

    /// Whether the namespace with this cookie is admitted.
    pub fn is_admitted(&self, cookie: u64) -> Result<bool> {
        Ok(self.admitted.get(&cookie)?.is_some())
    }

    /// Withdraws the admission of every namespace that is not in the list.
    pub fn retain(&self, wanted: &BTreeSet<u64>) -> Result<()> {
        self.admitted.retain(|cookie| wanted.contains(cookie))
    }

    /// How many namespaces are admitted.
    pub fn count(&self) -> usize {
        self.admitted.keys().count()
    }
}
