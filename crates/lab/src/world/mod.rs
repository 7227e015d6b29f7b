//! One set-up that stands: its namespaces, cgroups, rules and processes. What it is made of is its `Spec`.

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
pub use error::{SpecError, WorldError};
pub use fill::base_scope;
pub use process::{Fate, Output, ProcessError, Running, run};
pub use spec::{LoadSpec, Place, Spec};

use crate::cgroup::Cgroup;
use crate::error::{AtPath, FileError};
use crate::ground::Ground;
use crate::meter::{self, Account, Watched};
use crate::scenario::{LOAD, Scenario, Values, Variant};
use indexmap::IndexMap;
use namespaces::Namespaces;
use spec::ProcessSpec;
use std::path::PathBuf;
use std::sync::Arc;

/// Processes of it end when it is dropped, the youngest first; then everything else of it goes.
pub struct World {
    pub spec: Spec,
    dir: PathBuf,
    /// The youngest last.
    processes: Vec<(String, Running)>,
    pids: IndexMap<String, u32>,
    _namespaces: Namespaces,
    cgroup: Option<Cgroup>,
    /// Of processes; those of its own programs are below `cgroup`.
    cgroups: Vec<Cgroup>,
    undo: Vec<Cmd>,
    checks: Checks,
}

/// The scenario's checks of a set-up: they run once.
enum Checks {
    Due,
    Passed,
    Failed(Arc<ProcessError>),
}

impl World {
    /// Everything of it is there and listens, or the error says what is not.
    pub fn start(
        ground: &Ground,
        scenario: &Scenario,
        variant: (&str, &Variant),
        cell: &Values,
    ) -> Result<World, WorldError> {
        let number = ground.next_world();
        let dir = ground.new_dir(&format!("w{number}"))?;
        let prefix = format!("w{number}");
        let cgroup = ground.cgroup().map(|all| Cgroup::new(&all.path().join(&prefix))).transpose()?;
        let place =
            Place { dir: dir.clone(), prefix: prefix.clone(), cgroup: cgroup.as_ref().map(|each| each.path().into()) };
        let spec = Spec::fill(ground, scenario, variant, cell, place)?;
        let undo = sidestep::unsteer(ground, &spec)?;
        let namespaces = Namespaces::new(&prefix, &spec.namespaces)?;
        let mut world = World {
            spec,
            dir,
            processes: Vec::new(),
            pids: IndexMap::new(),
            _namespaces: namespaces,
            cgroup,
            cgroups: Vec::new(),
            undo,
            checks: Checks::Due,
        };
        world.furnish(ground)?;
        Ok(world)
    }

    fn furnish(&mut self, ground: &Ground) -> Result<(), WorldError> {
        for (name, text) in &self.spec.files {
            let path = self.dir.join(name);
            std::fs::write(&path, text).at("write", &path)?;
        }
        let own: Result<Vec<Cgroup>, FileError> = self.spec.cgroups().map(Cgroup::new).collect();
        self.cgroups = own?;
        iptables::load(&self.spec)?;
        self.steer(ground)?;
        for command in self.spec.setup.clone() {
            run(&command, None)?;
        }
        for (name, process) in self.spec.processes.clone() {
            self.start_process(name, &process)?;
        }
        Ok(())
    }

    /// Daemons of Sidestep's own, which the scenario does not name.
    fn steer(&mut self, ground: &Ground) -> Result<(), WorldError> {
        for (name, daemon) in sidestep::daemons(ground, &self.spec)? {
            self.cgroups.extend(daemon.command.cgroup.as_deref().map(Cgroup::new).transpose()?);
            self.start_process(name, &daemon)?;
        }
        sidestep::steer(ground, &self.spec)
    }

    fn start_process(&mut self, name: String, process: &ProcessSpec) -> Result<(), WorldError> {
        let running = Running::start(&process.command, Output::Log(&self.dir))?;
        ready::wait(&running, &process.ready)?;
        self.pids.insert(name.clone(), running.pid());
        self.processes.push((name, running));
        Ok(())
    }

    /// After a turn. A process that has ended though nobody asked it to: what it said. A load that took another way: what
    /// the scenario's check said.
    pub fn check(&mut self) -> Result<(), WorldError> {
        self.processes.iter_mut().try_for_each(|(_, running)| running.check())?;
        if let Checks::Due = self.checks {
            let failed = self.spec.checks.iter().find_map(|command| run(command, None).err());
            self.checks = failed.map_or(Checks::Passed, |error| Checks::Failed(Arc::new(error)));
        }
        self.failed_check().cloned().map_or(Ok(()), |error| Err(WorldError::Check(error)))
    }

    pub fn failed_check(&self) -> Option<&Arc<ProcessError>> {
        match &self.checks {
            Checks::Failed(error) => Some(error),
            Checks::Due | Checks::Passed => None,
        }
    }

    /// See `result::Turn`: since it stands.
    pub fn moved(&self, ground: &Ground) -> Result<IndexMap<String, u64>, WorldError> {
        moved::moved(ground, &self.spec)
    }

    /// Seconds of CPU of all its processes; none where there are no cgroups.
    pub fn cpu(&self) -> f64 {
        let whole: Vec<Account> = self.cgroup.iter().map(|each| Account::Cgroup(each.path().into())).collect();
        meter::spent(&whole).into_iter().map(|each| each.total()).sum()
    }

    /// Whose CPU and memory are looked at; the load's pid where it runs without a cgroup.
    pub fn watched(&self, ground: &Ground, load: Option<u32>) -> Watched {
        let counted = |name: &str| self.spec.processes.get(name).is_none_or(|process| !process.background);
        let pids = self.pids.iter().filter(|(name, _)| counted(name)).map(|(name, pid)| (name.clone(), *pid));
        // With a cgroup its pid does not matter.
        let pid = load.or_else(|| self.cgroup.as_ref().map(|_| 0));
        let loads = pid.map(|pid| (LOAD.to_string(), pid));
        let account = |(name, pid): (String, u32)| {
            let path = self.cgroup.as_ref().map(|all| all.path().join(&name));
            (name, path.map_or(Account::Tree(pid), Account::Cgroup))
        };
        Watched {
            processes: pids.chain(loads).map(account).collect(),
            whole: self.cgroup.as_ref().map(|each| each.path().to_path_buf()),
            outside: Some(ground.outside_proc()),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for command in self.undo.drain(..) {
            // What it cannot undo goes with the cgroup, or with the run's BPF file system.
            let _ = run(&command, None);
        }
        while let Some((_, running)) = self.processes.pop() {
            running.stop();
        }
        for cgroup in self.cgroups.drain(..).chain(self.cgroup.take()) {
            cgroup.remove();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
