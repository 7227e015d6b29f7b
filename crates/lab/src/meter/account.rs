//! Where a process and its children are accounted for.

use super::{cgroup, tree};
use std::ops::{Add, Sub};
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// A directory of cgroup v2, with all below it.
    Cgroup(PathBuf),
    /// A process and all that descend from it: where nobody may make cgroups. One whose parent has ended is lost, and of a
    /// root that has ended the CPU is known until it is waited for: the meter has to end before.
    Tree(u32),
}

/// Seconds of CPU since the beginning of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    pub user: f64,
    pub system: f64,
}

impl Account {
    /// Nothing where it does not exist (any more).
    pub fn spent(&self) -> Spent {
        match self {
            Account::Cgroup(path) => cgroup::spent(path).unwrap_or_default(),
            Account::Tree(root) => tree::spent(*root),
        }
    }

    /// Numbers of its processes.
    pub fn members(&self) -> Vec<i32> {
        match self {
            Account::Cgroup(path) => cgroup::members(path),
            Account::Tree(root) => tree::members(*root),
        }
    }
}

impl Spent {
    pub fn total(self) -> f64 {
        self.user + self.system
    }
}

impl Add for Spent {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

/// Never below zero: who has ended takes with them what was read before.
impl Sub for Spent {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self { user: (self.user - other.user).max(0.0), system: (self.system - other.system).max(0.0) }
    }
}
