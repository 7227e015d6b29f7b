//! Which network namespaces may talk on a node that is armed.

use crate::capture::inbound::open;
use crate::error::Result;
use crate::service_pins;
use crate::table::Table;
use std::collections::BTreeSet;
use std::path::Path;

/// Both tables outlive whoever writes them.
pub struct Admission {
    arming: Table<u32, u32>,
    admitted: Table<u64, u8>,
}

impl Admission {
    /// The tables of the programs that are installed there.
    pub fn open(pins: &Path) -> Result<Admission> {
        let directory = service_pins::maps_path(pins)?;
        Ok(Admission {
            arming: Table::new(open(&directory, "arming")?, "arming"),
            admitted: Table::new(open(&directory, "admitted")?, "admitted"),
        })
    }

    /// From now on who is not admitted may talk with nobody, or, again, with everybody.
    pub fn arm(&self, armed: bool) -> Result<()> {
        // An array's element is written in place: there is nothing to wait for.
        self.arming.add_all(&[(0, armed.into())])
    }

    /// Whether who is not admitted may talk with nobody.
    pub fn is_armed(&self) -> Result<bool> {
        Ok(self.arming.get(&0)?.is_some_and(|word| word != 0))
    }

    /// The namespace with this cookie may talk.
    pub fn admit(&self, cookie: u64) -> Result<()> {
        if self.is_admitted(cookie)? { Ok(()) } else { self.admitted.add_all(&[(cookie, 1)]) }
    }

    /// The namespace with this cookie may talk no more.
    pub fn dismiss(&self, cookie: u64) -> Result<()> {
        self.admitted.remove_all(&[cookie])
    }

    /// Whether the namespace with this cookie may talk.
    pub fn is_admitted(&self, cookie: u64) -> Result<bool> {
        Ok(self.admitted.get(&cookie)?.is_some())
    }

    /// Whoever is not in the list may talk no more.
    pub fn retain(&self, wanted: &BTreeSet<u64>) -> Result<()> {
        self.admitted.retain(|cookie| wanted.contains(cookie))
    }

    /// How many namespaces are admitted.
    pub fn count(&self) -> usize {
        self.admitted.keys().count()
    }
}
