//! A set-up with every template filled in: what is started, where, and with what.
//!
//! Cells whose set-ups are the same share one that stands; the load alone may differ.

use super::command::Cmd;
use super::ready::Ready;
use crate::load::Job;
use indexmap::IndexMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// `node` is the first.
    pub namespaces: Vec<String>,
    pub files: IndexMap<String, String>,
    pub rules: Vec<RulesSpec>,
    pub processes: IndexMap<String, ProcessSpec>,
    pub setup: Vec<Cmd>,
    pub load: LoadSpec,
    /// The broker's program, if there are rings.
    pub broker: Option<String>,
    /// The load runs under `sidestep run`, too.
    pub load_rings: bool,
    pub captures: Vec<CaptureSpec>,
    pub splices: Vec<SpliceSpec>,
    pub agent: Option<AgentSpec>,
    pub place: Place,
}

/// What is looked at after the first trial.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckSpec {
    /// It must succeed.
    Run(Cmd),
    /// Bytes of the load must have gone each of these ways.
    Moved(Vec<String>),
}

/// Where it all is.
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

    /// Each process under `sidestep run` adds a line at its end.
    pub fn report(&self) -> PathBuf {
        self.dir.join("report.jsonl")
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSpec {
    pub command: Cmd,
    /// Its path, without what stands before it.
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

/// The load of a cell. Its measurement and warm-up are two jobs of it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadSpec {
    /// Without the words of the tool.
    pub command: Cmd,
    pub job: Job,
    pub warmup: f64,
    pub patience: f64,
    /// What has to be so after it.
    pub checks: Vec<CheckSpec>,
}

impl Spec {
    /// Name and path of all programs that the scenario names.
    pub fn programs(&self) -> Vec<(String, String)> {
        self.processes.iter().map(|(name, each)| (name.clone(), each.program.clone())).collect()
    }

    /// Whether one that stands will do for the other's cell, if the other's load is put in its place.
    pub fn same_setup(&self, other: &Spec) -> bool {
        Spec { load: other.load.clone(), ..self.clone() } == *other
    }

    /// Everything that has a cgroup of its own, but for Sidestep's daemons.
    pub fn cgroups(&self) -> impl Iterator<Item = &Path> {
        let commands = self.processes.values().map(|each| &each.command).chain([&self.load.command]);
        commands.filter_map(|command| command.cgroup.as_deref())
    }

    /// Users of processes: who may share memory.
    pub fn users(&self) -> Vec<u32> {
        let commands = self.processes.values().map(|each| &each.command).chain([&self.load.command]);
        let mut users: Vec<u32> = commands.map(|command| command.user.map_or(0, |user| user.uid)).collect();
        users.sort_unstable();
        users.dedup();
        users
    }
}

/// Names of what Sidestep itself runs.
pub const SIDESTEP: &str = "sidestep";
pub const BROKER: &str = "sidestepd";
pub const AGENT: &str = "sidestep-agent";
