//! How the costs of a process and its children are determined.

use super::spent::Spent;
use super::{cgroup, tree};
use indexmap::IndexMap;
use procfs::process::Stat;
use std::ops::Add;
use std::path::{Path, PathBuf};

/// The processes whose costs are added up under one name of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// A cgroup v2 directory, with all below it.
    Cgroup(PathBuf),
    /// A process and all its descendants, where cgroups cannot be created. A descendant whose parent has ended is lost. CPU time of
    /// an ended root is known only until it is waited for, so the meter must end before.
    Tree(u32),
}

impl Account {
    /// The process ids in it, of those in `all`.
    pub fn members(&self, all: &[Stat]) -> Vec<i32> {
        match self {
            Account::Cgroup(path) => cgroup::members(path),
            Account::Tree(root) => tree::below(all, *root).map(|stat| stat.pid).collect(),
        }
    }

    fn spent(&self, all: &[Stat]) -> Spent {
        match self {
            Account::Cgroup(path) => cgroup::spent(path).unwrap_or_default(),
            Account::Tree(root) => tree::below(all, *root).map(tree::of).fold(Spent::default(), Spent::add),
        }
    }
}

/// The present process ids of each account.
pub fn members(accounts: &IndexMap<String, Account>) -> Vec<(String, Vec<u32>)> {
    let all = seen(accounts.values());
    let numbers =
        |account: &Account| account.members(&all).into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
    accounts.iter().map(|(name, account)| (name.clone(), numbers(account))).collect()
}

/// All processes if any account needs them.
fn seen<'a>(mut accounts: impl Iterator<Item = &'a Account>) -> Vec<Stat> {
    let trees = accounts.any(|account| matches!(account, Account::Tree(_)));
    if trees { tree::stats(Path::new(tree::PROC)) } else { Vec::new() }
}

/// CPU time of each account; zero if it does not exist (any more). Reads all processes at most once: this runs ten times a second
/// while a load runs.
pub fn spent(accounts: &[Account]) -> Vec<Spent> {
    let all = seen(accounts.iter());
    accounts.iter().map(|account| account.spent(&all)).collect()
}
