//! Who may take how many entries of the tables that all pods of the node share: no pod and no tenant may fill them.

use crate::error::{Error, Result};
use crate::table::Full;
use std::collections::HashMap;
use std::rc::Rc;

/// Of a table of capture, the rules of one pod, and its routes, may take the room divided by this.
const PODS: u32 = 64;

/// The room of one table, and who holds how much of it.
pub struct TableRoom {
    name: &'static str,
    room: u32,
    used: usize,
    /// By trust domain: the Kubernetes namespace of the pods.
    held: HashMap<Rc<str>, usize>,
}

impl TableRoom {
    pub fn new(name: &'static str, room: u32) -> TableRoom {
        TableRoom { name, room, used: 0, held: HashMap::new() }
    }

    /// Whether a pod of this trust domain may take so many more. A domain may as long as it then holds at most what is left for
    /// everybody.
    pub fn check(&self, domain: &str, more: usize) -> Result<()> {
        if more == 0 {
            return Ok(());
        }
        check_pod(self.name, more, self.room, PODS)?;
        let doing = || format!("map {}: put {more} entries beside {}", self.name, self.used);
        let room = self.room as usize;
        let Some(left) = room.checked_sub(self.used + more) else {
            return Err(Error::new(doing(), Full { room: self.room }));
        };
        let held = self.held.get(domain).copied().unwrap_or(0);
        if held + more > left {
            return Err(Error::new(doing(), TooMany::OfDomain { domain: domain.into(), held, left: room - self.used }));
        }
        Ok(())
    }

    pub fn take(&mut self, domain: &Rc<str>, count: usize) {
        self.used += count;
        *self.held.entry(Rc::clone(domain)).or_default() += count;
    }

    pub fn give(&mut self, domain: &str, count: usize) {
        self.used = self.used.saturating_sub(count);
        if let Some(held) = self.held.get_mut(domain) {
            *held = held.saturating_sub(count);
            if *held == 0 {
                self.held.remove(domain);
            }
        }
    }

    /// Name, written entries and capacity of the table.
    pub fn fill(&self) -> (&'static str, usize, u32) {
        (self.name, self.used, self.room)
    }
}

/// Whether one pod may take so many entries of a table: `parts` of them make up its room.
pub fn check_pod(name: &str, more: usize, room: u32, parts: u32) -> Result<()> {
    let most = room / parts;
    if more <= most as usize {
        return Ok(());
    }
    Err(Error::new(format!("map {name}: put {more} entries"), TooMany::OfPod { most, room }))
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
        let mut table = TableRoom::new("ranges", 6400);
        let (greedy, other): (Rc<str>, Rc<str>) = ("greedy".into(), "other".into());
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
