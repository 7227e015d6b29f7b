//! Where a process and its children are accounted for.

use super::spent::Spent;
use super::{cgroup, tree};
use indexmap::IndexMap;
use procfs::process::Stat;
use std::ops::Add;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// A directory of cgroup v2, with all below it.
    Cgroup(PathBuf),
    /// A process and all that descend from it: where nobody may make cgroups. One whose parent has ended is lost, and of a
    /// root that has ended the CPU is known until it is waited for: the meter has to end before.
    Tree(u32),
}

impl Account {
    /// Numbers of its processes, of those that run now.
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

/// Numbers of the processes of each, of those that run now.
pub fn members(accounts: &IndexMap<String, Account>) -> Vec<(String, Vec<u32>)> {
    let all = seen(accounts.values());
    let numbers =
        |account: &Account| account.members(&all).into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
    accounts.iter().map(|(name, account)| (name.clone(), numbers(account))).collect()
}

/// All processes, where somebody asks by process.
fn seen<'a>(mut accounts: impl Iterator<Item = &'a Account>) -> Vec<Stat> {
    let trees = accounts.any(|account| matches!(account, Account::Tree(_)));
    if trees { tree::stats(Path::new(tree::PROC)) } else { Vec::new() }
}

/// Of each; nothing where it does not exist (any more). Looks at all processes once, if at all: this is done ten times a
/// second while a load runs.
pub fn spent(accounts: &[Account]) -> Vec<Spent> {
    let all = seen(accounts.iter());
    accounts.iter().map(|account| account.spent(&all)).collect()
}
