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
use account::{Spent, spent};
use calls::Calls;
use foreign::Foreign;
use highest::Highest;
use indexmap::IndexMap;
use machine::Moment;
use std::path::{Path, PathBuf};

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
    fn each(&self) -> Vec<Account> {
        self.processes.values().cloned().collect()
    }

    fn all(&self) -> Vec<Account> {
        self.whole.as_ref().map_or_else(|| self.each(), |whole| vec![Account::Cgroup(whole.clone())])
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
        Meter {
            foreign: Foreign::now(watched),
            calls: Calls::open().ok(),
            highest: Highest::watch(watched.all()),
            spent: spent(&watched.each()),
            begun: Moment::now(),
            watched: watched.clone(),
        }
    }

    /// What is asked of every process, memory and foreign CPU, comes last: it takes time itself.
    pub fn end(mut self) -> Usage {
        let (passed, spent) = (Moment::now().since(&self.begun), spent(&self.watched.each()));
        Usage {
            seconds: passed.seconds,
            machine_cpu: passed.busy,
            softirq: passed.softirq,
            switches: passed.switches,
            steal: passed.steal,
            calls: self.calls.as_mut().and_then(Calls::total),
            highest_cpu: self.highest.end(),
            foreign: Foreign::now(&self.watched).since(&self.foreign),
            processes: processes(&self.watched, &self.spent, &spent),
        }
    }
}

fn processes(watched: &Watched, before: &[Spent], after: &[Spent]) -> IndexMap<String, ProcessUsage> {
    let all = tree::stats(Path::new(tree::PROC));
    let spent = after.iter().zip(before).map(|(after, before)| *after - *before);
    let each = watched.processes.iter().zip(spent);
    each.map(|((name, account), Spent { user, system })| {
        (name.clone(), ProcessUsage { user, system, memory: memory::of(&account.members(&all)) })
    })
    .collect()
}
