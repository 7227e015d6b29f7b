//! The costs of a trial, and other load in the meantime.

mod account;
mod calls;
mod calm;
mod cgroup;
mod foreign;
mod highest;
mod machine;
mod memory;
mod processors;
mod spent;
mod tree;

pub use account::Account;
pub(crate) use account::{members, spent};
pub use calls::why_no_calls;
pub(crate) use calm::Calm;
pub(crate) use processors::processors;

use crate::result::{ProcessUsage, Usage};
use calls::Calls;
use foreign::Foreign;
use highest::Highest;
use indexmap::IndexMap;
use machine::Moment;
use spent::Spent;
use std::path::{Path, PathBuf};

/// The processes whose costs are measured.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Processes, by the scenario's names.
    pub processes: IndexMap<String, Account>,
    /// The cgroup above all of the scenario's, if there are cgroups: for the highest CPU, and to tell foreign processes.
    pub whole: Option<PathBuf>,
    /// The host's /proc if the run has a PID namespace of its own: only there foreign processes are visible.
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

/// Measures one trial.
pub struct Meter {
    watched: Watched,
    spent: Vec<Spent>,
    foreign: Foreign,
    calls: Option<Calls>,
    highest: Highest,
    /// Bytes of each process, read while the load ran.
    memory: Option<Vec<u64>>,
    begun: Moment,
}

impl Meter {
    /// Starts counting, and a thread that watches the CPU. System calls are not counted where perf events are not permitted.
    pub fn begin(watched: &Watched) -> Meter {
        Meter {
            foreign: Foreign::now(watched),
            calls: Calls::open().ok(),
            highest: Highest::watch(watched.all()),
            spent: spent(&watched.each()),
            memory: None,
            begun: Moment::now(),
            watched: watched.clone(),
        }
    }

    /// Call once, in the middle: memory of the load, and of its connections, is freed at the end.
    pub fn sample_memory(&mut self) {
        self.memory.get_or_insert_with(|| memory(&self.watched));
    }

    /// Memory and foreign CPU come last: reading them from every process takes time.
    pub fn end(mut self) -> Usage {
        let (passed, spent) = (Moment::now().since(&self.begun), spent(&self.watched.each()));
        let calls = self.calls.as_mut().and_then(Calls::total);
        let foreign = Foreign::now(&self.watched).since(&self.foreign);
        let processes = self.processes(&spent);
        Usage {
            seconds: passed.seconds,
            machine_cpu: passed.busy,
            softirq: passed.softirq,
            switches: passed.switches,
            steal: passed.steal,
            calls,
            highest_cpu: self.highest.end(),
            foreign,
            processes,
        }
    }

    fn processes(&self, after: &[Spent]) -> IndexMap<String, ProcessUsage> {
        let memory = self.memory.clone().unwrap_or_else(|| memory(&self.watched));
        let spent = after.iter().zip(&self.spent).map(|(after, before)| *after - *before);
        let each = self.watched.processes.keys().zip(spent.zip(memory));
        each.map(|(name, (Spent { user, system }, memory))| (name.clone(), ProcessUsage { user, system, memory }))
            .collect()
    }
}

fn memory(watched: &Watched) -> Vec<u64> {
    let all = tree::stats(Path::new(tree::PROC));
    watched.processes.values().map(|account| memory::of(&account.members(&all))).collect()
}
