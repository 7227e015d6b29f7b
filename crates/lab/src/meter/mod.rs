//! What a turn has cost, and what else was at work meanwhile.

mod account;
mod calls;
mod calm;
mod cgroup;
mod foreign;
mod highest;
mod machine;
mod memory;
mod tree;

pub use account::Account;
pub use calls::why_no_calls;
pub use calm::Calm;

use crate::result::{ProcessUsage, Usage};
use account::Spent;
use calls::Calls;
use foreign::Foreign;
use highest::Highest;
use indexmap::IndexMap;
use machine::Moment;
use std::path::PathBuf;

/// Whose cost it is.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// By the scenario's names.
    pub processes: IndexMap<String, Account>,
    /// The cgroup above all of the scenario's, where they have any: for the highest CPU, and to know who is foreign.
    pub whole: Option<PathBuf>,
    /// The /proc around this PID namespace, where that is one of the run's own: foreign processes are seen there alone.
    pub outside: Option<PathBuf>,
}

impl Watched {
    fn accounts(&self) -> Vec<Account> {
        match &self.whole {
            Some(whole) => vec![Account::Cgroup(whole.clone())],
            None => self.processes.values().cloned().collect(),
        }
    }
}

/// Of one turn, while it is measured.
pub struct Meter {
    watched: Watched,
    spent: Vec<Spent>,
    foreign: Foreign,
    calls: Option<Calls>,
    highest: Highest,
    begun: Moment,
}

impl Meter {
    pub fn begin(watched: &Watched) -> Meter {
        let watched = watched.clone();
        Meter {
            foreign: Foreign::now(&watched),
            calls: Calls::open().ok(),
            highest: Highest::watch(watched.accounts()),
            spent: spent(&watched),
            begun: Moment::now(),
            watched,
        }
    }

    /// What is asked of every process, memory and foreign CPU, comes last: it takes time itself.
    pub fn end(mut self) -> Usage {
        let (passed, spent) = (Moment::now().since(&self.begun), spent(&self.watched));
        let calls = self.calls.as_mut().and_then(Calls::total);
        let highest_cpu = self.highest.end();
        let foreign = Foreign::now(&self.watched).since(&self.foreign);
        let pairs = self.watched.processes.iter().zip(spent.iter().zip(&self.spent));
        let processes =
            pairs.map(|((name, account), (after, before))| (name.clone(), usage(account, *after - *before)));
        Usage {
            seconds: passed.seconds,
            processes: processes.collect(),
            machine_cpu: passed.busy,
            softirq: passed.softirq,
            highest_cpu,
            switches: passed.switches,
            calls,
            steal: passed.steal,
            foreign,
        }
    }
}

fn spent(watched: &Watched) -> Vec<Spent> {
    watched.processes.values().map(Account::spent).collect()
}

fn usage(account: &Account, spent: Spent) -> ProcessUsage {
    ProcessUsage { user: spent.user, system: spent.system, memory: memory::of(&account.members()) }
}
