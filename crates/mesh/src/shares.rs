//! Who holds how much of a table that all tenants of a node share: none may fill it.

use std::collections::HashMap;
use std::sync::Arc;

/// How much of one table each tenant holds. A tenant is a trust domain: a Kubernetes namespace.
#[derive(Debug, Default)]
pub struct Shares {
    used: usize,
    held: HashMap<Arc<str>, usize>,
}

/// Why a tenant may not have more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// All tenants together have too much.
    Full,
    /// The tenant would hold more than it leaves to others.
    Share {
        /// What it has already.
        held: usize,
        /// What is free.
        left: usize,
    },
}

impl Shares {
    /// Whether a tenant may have `now` entries in place of `before`, in a table with this room. It may as long as it then holds at
    /// most what is left for everybody, and also if it takes no more than it had.
    pub fn check(&self, tenant: &str, before: usize, now: usize, room: usize) -> Result<(), Refused> {
        if now <= before {
            return Ok(());
        }
        let others = self.used - before;
        let left = room.checked_sub(others + now).ok_or(Refused::Full)?;
        let held = self.held.get(tenant).map_or(0, |held| held - before);
        if held + now > left {
            return Err(Refused::Share { held, left: room - others });
        }
        Ok(())
    }

    /// Counts so many more as the tenant's.
    pub fn take(&mut self, tenant: &Arc<str>, count: usize) {
        if count > 0 {
            self.used += count;
            *self.held.entry(Arc::clone(tenant)).or_default() += count;
        }
    }

    /// Counts so many less; the tenant has as many.
    pub fn give(&mut self, tenant: &str, count: usize) {
        let Some(held) = self.held.get_mut(tenant) else { return };
        self.used -= count;
        *held -= count;
        if *held == 0 {
            self.held.remove(tenant);
        }
    }

    /// What all tenants hold together.
    pub fn used(&self) -> usize {
        self.used
    }
}

/// Shares of entries that have numbers, each of which is one tenant's until it is free again.
#[derive(Debug, Default)]
pub struct NumberedShares {
    shares: Shares,
    owners: HashMap<u32, Arc<str>>,
}

impl NumberedShares {
    /// Whether the tenant may take so many more.
    pub fn check(&self, tenant: &str, more: usize, room: u32) -> Result<(), Refused> {
        self.shares.check(tenant, 0, more, room as usize)
    }

    /// Whether somebody has the number.
    pub fn has_owner(&self, number: u32) -> bool {
        self.owners.contains_key(&number)
    }

    /// `count`: how many entries the number stands for.
    pub fn take(&mut self, tenant: &Arc<str>, number: u32, count: u32) {
        let before = self.owners.insert(number, Arc::clone(tenant));
        debug_assert!(before.is_none(), "{number} was taken twice");
        self.shares.take(tenant, count as usize);
    }

    /// What nobody has taken is not counted: an earlier process has left it.
    pub fn give(&mut self, number: u32, count: u32) {
        if let Some(tenant) = self.owners.remove(&number) {
            self.shares.give(&tenant, count as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_takes_at_most_what_it_leaves() {
        let (greedy, other): (Arc<str>, Arc<str>) = ("greedy".into(), "other".into());
        let mut shares = Shares::default();
        shares.take(&greedy, 50);
        assert_eq!(shares.check(&greedy, 0, 1, 100), Err(Refused::Share { held: 50, left: 50 }));
        assert_eq!(shares.check(&greedy, 20, 21, 100), Err(Refused::Share { held: 30, left: 70 }));
        assert_eq!(shares.check(&greedy, 20, 20, 100), Ok(()));
        assert_eq!(shares.check(&other, 0, 25, 100), Ok(()));
        assert_eq!(shares.check(&other, 0, 51, 100), Err(Refused::Full));
        shares.take(&other, 25);
        assert_eq!(shares.check(&greedy, 20, 19, 100), Ok(()), "less than it had, though others have come");
        shares.give(&greedy, 50);
        assert_eq!((shares.check(&greedy, 0, 37, 100), shares.used()), (Ok(()), 25));
    }

    #[test]
    fn what_was_taken_over_is_counted_once_it_is_taken() {
        let tenant: Arc<str> = "tenant".into();
        let mut shares = NumberedShares::default();
        shares.give(7, 10);
        shares.take(&tenant, 7, 10);
        assert!(shares.has_owner(7) && shares.check(&tenant, 1, 20).is_err());
        shares.give(7, 10);
        assert!(!shares.has_owner(7) && shares.check(&tenant, 10, 20).is_ok());
    }
}
