//! A running set-up: its namespaces, cgroups, rules and processes. Its description is the `Spec`.

mod carried;
mod command;
mod error;
mod fill;
mod iptables;
mod moved;
mod namespaces;
mod process;
mod ready;
mod rules;
mod sidestep;
mod spec;

pub use command::{Cmd, NETNS};
pub use error::{CheckError, EnvironmentError, SpecError};
pub use fill::base_scope;
pub use process::{Fate, Output, ProcessError, Running, run};
pub use spec::{LoadSpec, Place, Spec};

use crate::cgroup::Cgroup;
use crate::context::RunContext;
use crate::error::{AtPath, FileError};
use crate::meter::{self, Account, Watched};
use crate::result::Carried;
use crate::scenario::{LOAD, Scenario, Values, Variant};
use indexmap::IndexMap;
use namespaces::Namespaces;
use spec::{CheckSpec, ProcessSpec};
use std::path::PathBuf;
use std::sync::Arc;

/// On drop its processes are ended, the youngest first; then everything else is removed.
pub struct Environment {
    pub spec: Spec,
    dir: PathBuf,
    /// In the order in which they were started.
    processes: Vec<(String, Running)>,
    pids: IndexMap<String, u32>,
    _namespaces: Namespaces,
    cgroup: Option<Cgroup>,
    /// Cgroups of processes; those of the scenario's are below `cgroup`.
    cgroups: Vec<Cgroup>,
    undo: Vec<Cmd>,
    /// Checks that have been run.
    checked: Vec<CheckSpec>,
    /// The error of the first one that failed.
    failed_check: Option<Arc<CheckError>>,
}

impl Environment {
    /// Starts everything and waits until it listens.
    pub fn start(
        context: &RunContext,
        scenario: &Scenario,
        variant: (&str, &Variant),
        cell: &Values,
    ) -> Result<Environment, EnvironmentError> {
        let number = context.next_world();
        let dir = context.new_dir(&format!("w{number}"))?;
        let prefix = format!("w{number}");
        let cgroup = context.cgroup().map(|all| Cgroup::new(&all.path().join(&prefix))).transpose()?;
        let place =
            Place { dir: dir.clone(), prefix: prefix.clone(), cgroup: cgroup.as_ref().map(|each| each.path().into()) };
        let spec = Spec::fill(context, scenario, variant, cell, place)?;
        let undo = sidestep::unsteer(context, &spec)?;
        let namespaces = Namespaces::new(&prefix, &spec.namespaces)?;
        let mut environment = Environment {
            spec,
            dir,
            processes: Vec::new(),
            pids: IndexMap::new(),
            _namespaces: namespaces,
            cgroup,
            cgroups: Vec::new(),
            undo,
            checked: Vec::new(),
            failed_check: None,
        };
        environment.furnish(context)?;
        Ok(environment)
    }

    fn furnish(&mut self, context: &RunContext) -> Result<(), EnvironmentError> {
        for (name, text) in &self.spec.files {
            let path = self.dir.join(name);
            std::fs::write(&path, text).at("write", &path)?;
        }
        let own: Result<Vec<Cgroup>, FileError> = self.spec.cgroups().map(Cgroup::new).collect();
        self.cgroups = own?;
        for command in self.spec.setup.clone() {
            run(&command, None)?;
        }
        iptables::load(&self.spec)?;
        self.steer(context)?;
        for (name, process) in self.spec.processes.clone() {
            self.start_process(name, &process)?;
        }
        Ok(())
    }

    /// Starts Sidestep's own daemons, which the scenario does not name.
    fn steer(&mut self, context: &RunContext) -> Result<(), EnvironmentError> {
        for (name, daemon) in sidestep::daemons(context, &self.spec)? {
            self.cgroups.extend(daemon.command.cgroup.as_deref().map(Cgroup::new).transpose()?);
            self.start_process(name, &daemon)?;
        }
        sidestep::steer(context, &self.spec)
    }

    fn start_process(&mut self, name: String, process: &ProcessSpec) -> Result<(), EnvironmentError> {
        let running = Running::start(&process.command, Output::Log(&self.dir))?;
        ready::wait(&running, &process.ready)?;
        self.pids.insert(name.clone(), running.pid());
        self.processes.push((name, running));
        Ok(())
    }

    /// Call after a trial, with the bytes that it moved each way. Fails if a process has ended unasked, or if a check of the
    /// scenario fails. Returns what checks have said that is to be noted.
    pub fn check(&mut self, load: &LoadSpec, moved: &IndexMap<String, u64>) -> Result<Vec<String>, EnvironmentError> {
        self.processes.iter_mut().try_for_each(|(_, running)| running.check())?;
        let mut noted = Vec::new();
        for check in &load.checks {
            if self.failed_check.is_some() || self.checked.contains(check) {
                continue;
            }
            match check.make(moved) {
                Ok(said) => noted.extend(said),
                Err(error) => self.failed_check = Some(Arc::new(error)),
            }
            self.checked.push(check.clone());
        }
        self.failed_check().cloned().map_or(Ok(noted), |error| Err(EnvironmentError::Check(error)))
    }

    pub fn failed_check(&self) -> Option<&Arc<CheckError>> {
        self.failed_check.as_ref()
    }

    /// As in `result::Trial`, since the set-up was started.
    pub fn moved(&self, context: &RunContext) -> Result<IndexMap<String, u64>, EnvironmentError> {
        moved::moved(context, &self.spec)
    }

    /// Seconds of CPU of all its processes; zero without cgroups.
    pub fn cpu(&self) -> f64 {
        let whole: Vec<Account> = self.cgroup.iter().map(|each| Account::Cgroup(each.path().into())).collect();
        meter::spent(&whole).into_iter().map(|each| each.total()).sum()
    }

    /// The processes whose costs are measured. `load`: pid of the load.
    pub fn watched(&self, context: &RunContext, load: Option<u32>) -> Watched {
        let counted = |name: &str| self.spec.processes.get(name).is_none_or(|process| !process.background);
        let pids = self.pids.iter().filter(|(name, _)| counted(name)).map(|(name, pid)| (name.clone(), *pid));
        // If there is a cgroup the pid is not used.
        let pid = load.or_else(|| self.cgroup.as_ref().map(|_| 0));
        let loads = pid.map(|pid| (LOAD.to_string(), pid));
        let account = |(name, pid): (String, u32)| {
            let path = self.cgroup.as_ref().map(|all| all.path().join(&name));
            (name, path.map_or(Account::Tree(pid), Account::Cgroup))
        };
        Watched {
            processes: pids.chain(loads).map(account).collect(),
            whole: self.cgroup.as_ref().map(|each| each.path().to_path_buf()),
            outside: Some(context.outside_proc()),
        }
    }
}

impl CheckSpec {
    /// Returns what it has said that is to be noted.
    fn make(&self, moved: &IndexMap<String, u64>) -> Result<Option<String>, CheckError> {
        match self {
            CheckSpec::Run { command, is_noted } => {
                let said = run(command, None)?;
                let said = said.trim();
                Ok((*is_noted && !said.is_empty()).then(|| said.to_string()))
            }
            CheckSpec::Moved(ways) => moved::unused(ways, moved).map_or(Ok(None), Err),
        }
    }
}

impl Environment {
    /// Ends its processes; name -> bytes of those that ran under Sidestep.
    pub fn retire(mut self) -> IndexMap<String, Carried> {
        self.end();
        let report = std::fs::read_to_string(self.spec.place.report()).unwrap_or_default();
        let job = &self.spec.load.job;
        carried::carried(&self.spec, job.tool.program(job), &self.pids, &report)
    }

    fn end(&mut self) {
        for command in self.undo.drain(..) {
            // What it cannot undo ends with the cgroup, or with the run's BPF file system.
            let _ = run(&command, None);
        }
        while let Some((_, running)) = self.processes.pop() {
            running.stop();
        }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.end();
        for cgroup in self.cgroups.drain(..).chain(self.cgroup.take()) {
            cgroup.remove();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
