//! How much of the broker one trust domain may take.
//!
//! For each limited resource, a domain may take more as long as it then holds at most [`SHARE`] times what is left for
//! everybody. So a single greedy domain gets two thirds, a second one two thirds of the rest, and so on: `n` domains that take
//! all they can leave one part in `2 n + 1`, which only domains that hold little can take. No share needs to be reserved for a
//! domain, and no domain can exhaust the whole.
//!
//! | what | in all |
//! |---|---|
//! | descriptors | the limit of open files, less [`OWN_DESCRIPTORS`] |
//! | mappings | vm.max_map_count, less [`OWN_MAPPINGS`] |
//! | waiting offers | [`OFFERS`] |
//! | connections with a slot | [`CONNECTIONS`] |
//! | records that wait for a member to read | [`RECORDS`], besides [`FREE_RECORDS`](crate::outbox) of each member |
//! | questions that the stack has not answered | [`QUESTIONS`] |
//! | receiver threads | [`RECEIVERS`]: one for each domain; [`RECEIVERS_ELSEWHERE`] for the users of a network namespace |
//!
//! A member costs a descriptor and a mapping; each of its doorbells two descriptors; a link a descriptor and a mapping in
//! the domain of either end, and a descriptor for each doorbell at either end. A connection counts in the domain of either end. A
//! network namespace other than the broker's costs a descriptor in the domain that was the first to offer a socket there. A process
//! that has asked the broker to stay costs a descriptor until it ends.
//!
//! If the broker's control group has a limit of memory, as a container has, there is less of everything ([`SHARES`]): all domains
//! together cannot make the kernel end the broker.

use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// A domain holds at most this many times what is left.
const SHARE: usize = 2;

/// Descriptors that count in no domain: listeners, the epoll instance, the standard descriptors, connections that are turned
/// away.
const OWN_DESCRIPTORS: usize = 128;
/// Mappings for the program, its libraries, and the stacks of its threads.
const OWN_MAPPINGS: usize = 4096;
/// The kernel's limit of mappings, if it cannot be read.
const DEFAULT_MAPPINGS: usize = 65530;
const OFFERS: usize = 262_144;
const RECORDS: usize = 262_144;
const CONNECTIONS: usize = 1 << 20;
/// A domain that blocks its thread in the stack leaves its questions open. Further offers wait for another end on this host only.
const QUESTIONS: usize = 4096;
/// Each receiver has a stack and three descriptors.
pub const RECEIVERS: usize = 1024;
/// Of the users of one network namespace that is not the broker's own. A container there may have any number of users.
pub const RECEIVERS_ELSEWHERE: usize = RECEIVERS / 16;

/// Of limited memory, for the program itself and what is not counted.
const OWN_MEMORY: u64 = 32 << 20;
/// The rest is for these.
const SHARES: Shares = Shares {
    // The page, the socket, and 32 records that a member has not read; or the head of a link and the first of its slots.
    mappings: Share { of_16: 8, bytes: 32 << 10 },
    // A doorbell's eventfd is in a set, too.
    descriptors: Share { of_16: 2, bytes: 512 },
    offers: Share { of_16: 2, bytes: 512 },
    records: Share { of_16: 1, bytes: 256 },
    // With the words of its slot, which the broker is the first to touch.
    connections: Share { of_16: 3, bytes: 1536 },
};

struct Shares {
    mappings: Share,
    descriptors: Share,
    offers: Share,
    records: Share,
    connections: Share,
}

/// What part of the memory, in sixteenths, may be used for one resource, and what one of it takes at most: in the broker, and in
/// the kernel on the broker's account.
#[derive(Clone, Copy)]
struct Share {
    of_16: u64,
    bytes: u64,
}

impl Share {
    /// As many as there may be at all, and as there is memory for.
    fn of(&self, memory: Option<u64>, at_all: usize) -> Arc<Budget> {
        let fit = |memory: u64| memory.saturating_sub(OWN_MEMORY) / 16 * self.of_16 / self.bytes;
        Budget::new(memory.map_or(at_all, |memory| at_all.min(fit(memory) as usize)))
    }
}

/// Whether a domain that holds `held` may take `n` more of `limit`, of which `used` are in use.
fn may_take(held: usize, n: usize, used: usize, limit: usize) -> bool {
    limit.checked_sub(used + n).is_some_and(|left| held + n <= SHARE * left)
}

/// One limited resource of the broker.
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

/// What one domain holds of a resource.
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

    /// None: the domain holds enough. (If two threads take the last ones at once, both may be refused; they never get too
    /// many.)
    pub fn claim(self: &Arc<Account>, n: usize) -> Option<Permit> {
        self.claim_if(n, may_take)
    }

    /// Takes `n` if that many are left, however much the domain holds.
    pub fn claim_rest(self: &Arc<Account>, n: usize) -> Option<Permit> {
        self.claim_if(n, |_, n, used, limit| used.saturating_add(n) <= limit)
    }

    /// Counts `n` that are in use already, even beyond the limit.
    pub fn owe(self: &Arc<Account>, n: usize) -> Permit {
        self.budget.used.fetch_add(n, SeqCst);
        self.held.fetch_add(n, SeqCst);
        Permit { account: self.clone(), n }
    }

    /// `may`: called with the amounts held, wanted, used, and the limit.
    fn claim_if(self: &Arc<Account>, n: usize, may: fn(usize, usize, usize, usize) -> bool) -> Option<Permit> {
        let used = self.budget.used.fetch_add(n, SeqCst);
        let held = self.held.fetch_add(n, SeqCst);
        let permit = Permit { account: self.clone(), n };
        may(held, n, used, self.budget.limit).then_some(permit)
    }
}

/// The amount is taken until this is dropped.
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

/// All resources that are limited by domain.
#[derive(Clone, Debug)]
pub struct Budgets {
    descriptors: Arc<Budget>,
    mappings: Arc<Budget>,
    offers: Arc<Budget>,
    records: Arc<Budget>,
    connections: Arc<Budget>,
    /// The stack keeps the accounts of these: they outlive the members of a domain.
    pub questions: Arc<Budget>,
}

impl Budgets {
    /// The limits of this process, as the system reports them now.
    pub fn of_this_process() -> Budgets {
        let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX / 4, |n| n as usize);
        let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let mappings = mappings.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_MAPPINGS);
        Budgets::of(files, mappings, crate::memory_limit::of_this_process())
    }

    /// `memory`: its limit, if there is one.
    fn of(files: usize, mappings: usize, memory: Option<u64>) -> Budgets {
        Budgets {
            descriptors: SHARES.descriptors.of(memory, files.saturating_sub(OWN_DESCRIPTORS)),
            mappings: SHARES.mappings.of(memory, mappings.saturating_sub(OWN_MAPPINGS)),
            offers: SHARES.offers.of(memory, OFFERS),
            records: SHARES.records.of(memory, RECORDS),
            connections: SHARES.connections.of(memory, CONNECTIONS),
            questions: Budget::new(QUESTIONS),
        }
    }
}

/// What the members of one domain hold of each resource.
#[derive(Clone, Debug)]
pub struct Accounts {
    pub descriptors: Arc<Account>,
    pub mappings: Arc<Account>,
    pub offers: Arc<Account>,
    pub records: Arc<Account>,
    pub connections: Arc<Account>,
}

impl Accounts {
    pub fn new(budgets: &Budgets) -> Accounts {
        Accounts {
            descriptors: Account::new(&budgets.descriptors),
            mappings: Account::new(&budgets.mappings),
            offers: Account::new(&budgets.offers),
            records: Account::new(&budgets.records),
            connections: Account::new(&budgets.connections),
        }
    }

    /// Whether the domain holds nothing.
    pub fn are_clear(&self) -> bool {
        let Accounts { descriptors, mappings, offers, records, connections } = self;
        [descriptors, mappings, offers, records, connections].iter().all(|account| account.held() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one after another until refused.
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

    /// Earlier domains give way when others come: they do not get back what they return.
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
    fn all_that_can_be_taken_fits_into_limited_memory() {
        for memory in [64, 256, 512, 4096].map(|mib: u64| mib << 20) {
            let all = Budgets::of(1 << 20, 65_530, Some(memory));
            let taken = [
                (&all.mappings, SHARES.mappings),
                (&all.descriptors, SHARES.descriptors),
                (&all.offers, SHARES.offers),
                (&all.records, SHARES.records),
                (&all.connections, SHARES.connections),
            ];
            let bytes: u64 = taken.iter().map(|(budget, share)| budget.limit as u64 * share.bytes).sum();
            assert!(bytes <= memory - OWN_MEMORY, "{bytes} of {memory}");
            assert!(taken.iter().all(|(budget, _)| budget.limit >= 256), "{all:?}");
        }
        let all = Budgets::of(1 << 20, 65_530, None);
        assert_eq!((all.offers.limit, all.mappings.limit), (OFFERS, 65_530 - OWN_MAPPINGS));
        assert_eq!(Budgets::of(1 << 20, 65_530, Some(1)).mappings.limit, 0, "no memory at all");
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
