//! A set-up with all templates filled in: what is started, where, and with what.
//!
//! Cells with equal set-ups share one; only the load may differ.

use super::command::Cmd;
use super::ready::Ready;
use crate::load::Job;
use indexmap::IndexMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// `node` is the first one.
    pub namespaces: Vec<String>,
    pub files: IndexMap<String, String>,
    pub rules: Vec<RulesSpec>,
    pub processes: IndexMap<String, ProcessSpec>,
    pub setup: Vec<Cmd>,
    pub load: LoadSpec,
    /// None: no rings.
    pub broker: Option<BrokerSpec>,
    /// Whether the load runs under `sidestep run`, too.
    pub load_rings: bool,
    pub captures: Vec<CaptureSpec>,
    pub splices: Vec<SpliceSpec>,
    pub agent: Option<AgentSpec>,
    pub place: Place,
}

/// What is checked after the first trial.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckSpec {
    /// The command must succeed.
    Run { command: Cmd, is_noted: bool },
    /// Bytes of the load must have taken each of these ways.
    Moved(Vec<String>),
}

/// The directories of a set-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub dir: PathBuf,
    pub prefix: String,
    pub cgroup: Option<PathBuf>,
}

impl Place {
    /// The broker's socket.
    pub fn broker(&self) -> PathBuf {
        self.dir.join("broker")
    }

    /// Each process under `sidestep run` appends a line when it ends.
    pub fn report(&self) -> PathBuf {
        self.dir.join("report.jsonl")
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSpec {
    pub command: Cmd,
    /// The path of the program, without prefixes.
    pub program: String,
    pub ready: Ready,
    pub background: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RulesSpec {
    pub namespace: String,
    pub command: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BrokerSpec {
    pub program: String,
    /// Lines for its configuration file.
    pub settings: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CaptureSpec {
    pub namespace: String,
    pub options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpliceSpec {
    pub namespace: Option<String>,
    pub ports: Vec<String>,
    pub options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AgentSpec {
    pub objects: String,
    pub captures: Vec<CaptureSpec>,
    pub options: Vec<String>,
}

/// The load of a cell. Measurement and warm-up are two jobs of it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadSpec {
    /// Without the tool's own arguments.
    pub command: Cmd,
    pub job: Job,
    pub warmup: f64,
    pub patience: f64,
    /// What must hold after it.
    pub checks: Vec<CheckSpec>,
}

impl Spec {
    /// Names and paths of all programs that the scenario names.
    pub fn programs(&self) -> Vec<(String, String)> {
        self.processes.iter().map(|(name, each)| (name.clone(), each.program.clone())).collect()
    }

    /// Whether the set-ups are equal except for the load, so that one running set-up serves both cells.
    pub fn same_setup(&self, other: &Spec) -> bool {
        Spec { load: other.load.clone(), ..self.clone() } == *other
    }

    /// All cgroups except those of Sidestep's daemons.
    pub fn cgroups(&self) -> impl Iterator<Item = &Path> {
        let commands = self.processes.values().map(|each| &each.command).chain([&self.load.command]);
        commands.filter_map(|command| command.cgroup.as_deref())
    }

    /// Users of the processes, which must be allowed to share memory.
    pub fn users(&self) -> Vec<u32> {
        let commands = self.processes.values().map(|each| &each.command).chain([&self.load.command]);
        let mut users: Vec<u32> = commands.map(|command| command.user.map_or(0, |user| user.uid)).collect();
        users.sort_unstable();
        users.dedup();
        users
    }
}

/// Names of Sidestep's own processes.
pub const SIDESTEP: &str = "sidestep";
pub const BROKER: &str = "sidestepd";
pub const AGENT: &str = "sidestep-agent";
