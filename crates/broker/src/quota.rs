//! How much of the broker one trust domain may take.
//!
//! Of everything that is limited a domain may take more as long as it then holds at most [`SHARE`] times what is left for
//! everybody. So one domain alone gets two thirds, a second greedy one two thirds of the rest, and so on: `n` domains that
//! take all they get leave one part in `2 n + 1`, which only those can take that hold little. No domain needs a share of its
//! own set aside, and none can exhaust the whole.
//!
//! | what | in all |
//! |---|---|
//! | descriptors | the limit of open files, less [`OWN_DESCRIPTORS`] |
//! | mappings | vm.max_map_count, less [`OWN_MAPPINGS`] |
//! | waiting offers | [`OFFERS`] |
//! | records that wait for a member to read | [`RECORDS`], besides [`FREE_RECORDS`](crate::outbox) of each member |
//! | receiver threads | [`RECEIVERS`]: one for each domain |
//!
//! A member costs a descriptor and a mapping; each of its doorbells two descriptors; a link a descriptor and a mapping in
//! the domain of either end, and a descriptor for each doorbell at either end.

use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A domain holds at most so many times what is left.
const SHARE: usize = 2;

/// For what is nobody's: listeners, the epoll instance, the standard descriptors, connections that are turned away.
const OWN_DESCRIPTORS: usize = 128;
/// For the program, its libraries, and the stacks of its threads.
const OWN_MAPPINGS: usize = 4096;
/// Of the kernel, if it does not say.
const DEFAULT_MAPPINGS: usize = 65530;
const OFFERS: usize = 262_144;
const RECORDS: usize = 262_144;
/// Each has a stack, and three descriptors.
pub const RECEIVERS: usize = 1024;

/// May a domain that holds `held` take `n` more of `limit`, of which `used` are taken?
fn may_take(held: usize, n: usize, used: usize, limit: usize) -> bool {
    limit.checked_sub(used + n).is_some_and(|left| held + n <= SHARE * left)
}

/// One limited thing, in all.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    pub fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget { limit, used: AtomicUsize::new(0) })
    }
}

/// What one domain holds of it.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    held: AtomicUsize,
}

impl Account {
    pub fn new(budget: &Arc<Budget>) -> Arc<Account> {
        Arc::new(Account { budget: budget.clone(), held: AtomicUsize::new(0) })
    }

    pub fn held(&self) -> usize {
        self.held.load(SeqCst)
    }

    /// None: it holds enough. (Of two threads that take the last ones at once both may be refused, never served.)
    pub fn claim(self: &Arc<Account>, n: usize) -> Option<Permit> {
        self.claim_if(n, may_take)
    }

    /// Whatever it holds, if there is so much.
    pub fn claim_rest(self: &Arc<Account>, n: usize) -> Option<Permit> {
        self.claim_if(n, |_, n, used, limit| used.saturating_add(n) <= limit)
    }

    /// It has been taken already, and counts although there may not be so much.
    pub fn owe(self: &Arc<Account>, n: usize) -> Permit {
        self.budget.used.fetch_add(n, SeqCst);
        self.held.fetch_add(n, SeqCst);
        Permit { account: self.clone(), n }
    }

    /// `may`: of what is held, what is wanted, what is used, and what there is in all.
    fn claim_if(self: &Arc<Account>, n: usize, may: fn(usize, usize, usize, usize) -> bool) -> Option<Permit> {
        let used = self.budget.used.fetch_add(n, SeqCst);
        let held = self.held.fetch_add(n, SeqCst);
        let permit = Permit { account: self.clone(), n };
        may(held, n, used, self.budget.limit).then_some(permit)
    }
}

/// So much is taken, until this is dropped.
#[derive(Debug)]
pub struct Permit {
    account: Arc<Account>,
    n: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.n, SeqCst);
        self.account.budget.used.fetch_sub(self.n, SeqCst);
    }
}

/// All that is limited by domain.
#[derive(Clone, Debug)]
pub struct Budgets {
    descriptors: Arc<Budget>,
    mappings: Arc<Budget>,
    offers: Arc<Budget>,
    records: Arc<Budget>,
}

impl Budgets {
    /// Of this process, as the system says now.
    pub fn of_this_process() -> Budgets {
        let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX / 4, |n| n as usize);
        let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let mappings = mappings.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_MAPPINGS);
        Budgets {
            descriptors: Budget::new(files.saturating_sub(OWN_DESCRIPTORS)),
            mappings: Budget::new(mappings.saturating_sub(OWN_MAPPINGS)),
            offers: Budget::new(OFFERS),
            records: Budget::new(RECORDS),
        }
    }
}

/// What one domain holds of all of it.
#[derive(Clone, Debug)]
pub struct Accounts {
    pub descriptors: Arc<Account>,
    pub mappings: Arc<Account>,
    pub offers: Arc<Account>,
    pub records: Arc<Account>,
}

impl Accounts {
    pub fn new(budgets: &Budgets) -> Accounts {
        let [descriptors, mappings, offers, records] =
            [&budgets.descriptors, &budgets.mappings, &budgets.offers, &budgets.records].map(Account::new);
        Accounts { descriptors, mappings, offers, records }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one after the other until it is refused.
    fn greedy(account: &Arc<Account>) -> Vec<Permit> {
        std::iter::from_fn(|| account.claim(1)).collect()
    }

    #[test]
    fn greedy_domains_leave_something_for_those_that_hold_little() {
        const LIMIT: usize = 20_000;
        let budget = Budget::new(LIMIT);
        let mut all: Vec<(Arc<Account>, Vec<Permit>)> = Vec::new();
        for n in 1..=20 {
            let account = Account::new(&budget);
            let permits = greedy(&account);
            all.push((account, permits));
            let left = LIMIT - budget.used.load(SeqCst);
            assert!(left >= LIMIT / 3_usize.pow(n).min(LIMIT), "{left} left by {n}");
            let newcomer = Account::new(&budget);
            assert_eq!(newcomer.claim(1).is_some(), left > 1, "the next one, of {left}");
        }
        assert_eq!(all[0].0.held(), 2 * LIMIT / 3);
    }

    /// Those who were there first give way as others come: what they give back they do not get again.
    #[test]
    fn domains_that_take_and_give_back_come_to_equal_shares() {
        let budget = Budget::new(7000);
        let mut domains: Vec<_> = (0..3).map(|_| (Account::new(&budget), Vec::new())).collect();
        for _ in 0..200 {
            for (account, permits) in &mut domains {
                permits.truncate(permits.len() * 9 / 10);
                permits.extend(greedy(account));
            }
        }
        for (account, _) in &domains {
            assert!(account.held().abs_diff(2000) < 200, "{}", account.held());
        }
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let budget = Budget::new(30);
        let account = Account::new(&budget);
        for _ in 0..3 {
            assert_eq!(greedy(&account).len(), 20);
            assert_eq!((account.held(), budget.used.load(SeqCst)), (0, 0), "also by what was refused");
        }
        assert!(account.claim(21).is_none() && account.claim(20).is_some());
        assert!(Account::new(&Budget::new(0)).claim(1).is_none());
    }
}
