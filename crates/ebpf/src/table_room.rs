//! Who may take how many entries of the tables that all pods of the node share: no pod and no tenant may fill them.

use crate::error::{Error, Result};
use crate::table::Full;
use sidestep_mesh::shares::{Refused, Shares};
use std::sync::Arc;

/// The room of one table, and who holds how much of it.
pub struct TableRoom {
    name: &'static str,
    room: u32,
    /// What one pod puts at a time may take the room divided by this.
    parts: u32,
    /// By trust domain: the Kubernetes namespace of the pods.
    shares: Shares,
}

impl TableRoom {
    pub fn new(name: &'static str, room: u32, parts: u32) -> TableRoom {
        TableRoom { name, room, parts, shares: Shares::default() }
    }

    /// Whether a pod of this trust domain may take so many more.
    pub fn check(&self, domain: &str, more: usize) -> Result<()> {
        let most = self.room / self.parts;
        if more > most as usize {
            let doing = format!("map {}: put {more} entries", self.name);
            return Err(Error::new(doing, TooMany::OfPod { most, room: self.room }));
        }
        let doing = || format!("map {}: put {more} entries beside {}", self.name, self.shares.used());
        self.shares.check(domain, 0, more, self.room as usize).map_err(|why| match why {
            Refused::Full => Error::new(doing(), Full { room: self.room }),
            Refused::Share { held, left } => {
                Error::new(doing(), TooMany::OfDomain { domain: domain.into(), held, left })
            }
        })
    }

    pub fn take(&mut self, domain: &Arc<str>, count: usize) {
        self.shares.take(domain, count);
    }

    pub fn give(&mut self, domain: &str, count: usize) {
        self.shares.give(domain, count);
    }

    /// Name, written entries and capacity of the table.
    pub fn fill(&self) -> (&'static str, usize, u32) {
        (self.name, self.shares.used(), self.room)
    }
}

/// Why entries are not written though there is room.
#[derive(Debug, thiserror::Error)]
pub enum TooMany {
    #[error("one pod may have {most} of the table's {room} entries: shorten its lists or rules")]
    OfPod { most: u32, room: u32 },
    #[error(
        "pods of namespace {domain:?} have {held} already, and may have at most as many as they leave to others of \
         the {left} free ones"
    )]
    OfDomain { domain: String, held: usize, left: usize },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_takes_at_most_what_it_leaves() {
        let mut table = TableRoom::new("ranges", 6400, 64);
        let (greedy, other): (Arc<str>, Arc<str>) = ("greedy".into(), "other".into());
        assert!(table.check(&greedy, 101).is_err(), "for one pod");
        let mut taken = 0;
        while table.check(&greedy, 100).is_ok() {
            table.take(&greedy, 100);
            taken += 100;
        }
        assert_eq!(taken, 3200);
        assert!(table.check(&greedy, 1).is_err() && table.check(&greedy, 0).is_ok());
        assert!(table.check(&other, 100).is_ok());
        table.give(&greedy, 100);
        assert!(table.check(&greedy, 100).is_ok());
        assert_eq!(table.fill(), ("ranges", 3100, 6400));
    }
}
