//! A scenario: processes, variants, a load, and how often it is all measured. `docs/lab.md` explains the file.

mod cells;
mod check;
mod design;
mod error;
mod read;
mod shipped;
mod text;
mod variant;

pub use cells::Values;
pub(crate) use check::{LOAD, NODE};
pub use design::{Design, Restart};
pub use error::{FieldError, NotShipped, ScenarioError, TemplateError};
pub use read::{parse, read};
pub use shipped::{find, shipped};
pub use text::{Scope, Text};
pub use variant::{Agent, Capture, Fill, Iptables, Need, Rings, Setup, Splice, Variant};

use crate::load::Tool;
use crate::result::{Goal, Published};
use indexmap::IndexMap;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// A scenario's file. Its fields are the keys of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// As in the file's name.
    pub name: String,
    /// The question that it answers.
    pub about: String,
    /// The experiment that it reproduces. None: it is one of our own.
    #[serde(default)]
    pub published: Option<Published>,
    /// axis -> its values; each combination is a cell.
    #[serde(default)]
    pub axes: IndexMap<String, Vec<Text>>,
    /// Cells that are left out: axis -> values. A cell that matches all axes of one element is left out.
    #[serde(default)]
    pub skip: Vec<IndexMap<String, Vec<Text>>>,
    /// Names for use in templates; a variant may override them.
    #[serde(default)]
    pub values: IndexMap<String, Text>,
    /// Network namespaces, each connected to the one called `node`, which always exists.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Commands that run once, before everything else. Their results for later go into `${shared}`.
    #[serde(default)]
    pub prepare: Vec<Vec<Text>>,
    /// Files in `${dir}`, written anew for each set-up.
    #[serde(default)]
    pub files: IndexMap<String, Text>,
    /// Commands that run in each set-up before its rules are loaded and its processes are started.
    #[serde(default)]
    pub setup: Vec<Setup>,
    /// By name, in the order in which they are started.
    #[serde(default)]
    pub processes: IndexMap<String, Process>,
    /// By name, in the order of reports.
    pub variants: IndexMap<String, Variant>,
    /// The variant with which the others are compared.
    pub baseline: String,
    /// The requests, and the tool that makes and times them.
    pub load: Load,
    /// Commands that fail if something is wrong: a wrong answer, or a load that took another way. They run after a set-up's first
    /// trial, in the load's surroundings. If one fails, the set-up's trials do not count, and the run is no success.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// Goals; the report says whether they were reached.
    #[serde(default)]
    pub goals: Vec<Goal>,
    /// How often everything is measured.
    #[serde(default)]
    pub design: Design,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
}

/// A server, or anything else that runs while the load does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Program and arguments.
    pub run: Vec<Text>,
    /// Environment variables, added to the lab's own; they outweigh those of the variant.
    #[serde(default)]
    pub env: IndexMap<String, Text>,
    /// Its network namespace; `node` by default.
    #[serde(default)]
    pub namespace: Option<String>,
    /// In the form of taskset(1): `0`, `1-3`.
    #[serde(default)]
    pub cpus: Option<Text>,
    /// `UID` or `UID:GID`.
    #[serde(default)]
    pub user: Option<User>,
    /// When it is ready; by default as soon as it has been started.
    #[serde(default)]
    pub ready: Ready,
    /// A disturbance on purpose: its costs are shown, but do not count as the scenario's.
    #[serde(default)]
    pub background: bool,
    /// The condition under which it is started.
    #[serde(default)]
    pub when: When,
}

/// The variants and cells to which something applies; an empty field permits all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// Names of variants.
    #[serde(default)]
    pub variants: Vec<String>,
    /// axis -> values
    #[serde(default)]
    pub cells: IndexMap<String, Vec<Text>>,
}

/// Whose rights a program has. `UID` alone means the group of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub struct User {
    /// In the user namespace of the run. If an ordinary user runs the lab, only 0 exists there.
    pub uid: u32,
    /// In the same user namespace.
    pub gid: u32,
}

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// It listens at this TCP port, as /proc shows; the lab does not connect.
    #[serde(default)]
    pub port: Option<Text>,
    /// This file or socket exists.
    #[serde(default)]
    pub path: Option<Text>,
    /// Time limit.
    #[serde(default)]
    pub seconds: Option<Text>,
}

/// Has either `run` or `moved`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Program and arguments; succeeds with exit status 0. Empty: `moved` counts.
    #[serde(default)]
    pub run: Vec<Text>,
    /// Instead of a command: ways that bytes of the trial's load must have taken, as results name them (`by ring`, `spliced in
    /// pod`).
    #[serde(default)]
    pub moved: Vec<String>,
    /// The result has a note of what the command says on its standard output.
    #[serde(default)]
    pub noted: bool,
    /// The variants and cells in which it is made.
    #[serde(default)]
    pub when: When,
}

/// The scenario's `load`: a [`Job`](crate::load::Job) before its templates are filled in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The program that makes the requests and times them.
    pub tool: Tool,
    /// A URL, or `ADDRESS:PORT`.
    #[serde(default)]
    pub target: Text,
    /// How many exist at the same time; 1 by default.
    #[serde(default = "one")]
    pub connections: Text,
    /// Threads of the tool, where it has such an option; 1 by default.
    #[serde(default = "one")]
    pub threads: Text,
    /// Requests a second of an open loop; if absent or 0, connections wait for their answers.
    #[serde(default)]
    pub rate: Option<Text>,
    /// Duration of a measurement; 2 by default.
    #[serde(default = "two")]
    pub seconds: Text,
    /// Seconds of warm-up by the same load, before each measurement.
    #[serde(default = "warm")]
    pub warmup: Text,
    /// Seconds that the tool may take longer, to start and to get its last answers; then it is killed, and the trial has failed.
    #[serde(default = "patience")]
    pub patience: Text,
    /// Bytes in a request, for tools that send any.
    #[serde(default)]
    pub body: Option<Text>,
    /// Ends the measurement instead of `seconds`.
    #[serde(default)]
    pub requests: Option<Text>,
    /// Further options of the tool, put before the target.
    #[serde(default)]
    pub options: Vec<Text>,
    /// For the tools `command` and `json`: program and arguments.
    #[serde(default)]
    pub command: Vec<Text>,
    /// Environment variables, as those of a process.
    #[serde(default)]
    pub env: IndexMap<String, Text>,
    /// The tool's network namespace; `node` by default.
    #[serde(default)]
    pub namespace: Option<String>,
    /// In the form of taskset(1); by default all.
    #[serde(default)]
    pub cpus: Option<Text>,
    /// Whose rights the tool has; by default the lab's.
    #[serde(default)]
    pub user: Option<User>,
}

fn one() -> Text {
    Text::from("1")
}

fn two() -> Text {
    Text::from("2")
}

fn patience() -> Text {
    Text::from("15")
}

fn warm() -> Text {
    Text::from("0.3")
}

/// Empty fields leave the scenario as it is, except where a default is named.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// New values of the axes that it names.
    #[serde(default)]
    pub axes: IndexMap<String, Vec<Text>>,
    /// The variants that remain; the baseline must be among them. Empty: all.
    #[serde(default)]
    pub variants: Vec<String>,
    /// For [`Load::seconds`]; 1 by default.
    #[serde(default)]
    pub seconds: Option<Text>,
    /// For [`Load::warmup`]; 0.2 by default.
    #[serde(default)]
    pub warmup: Option<Text>,
    /// For [`Design::least_rounds`]; 6 by default.
    #[serde(default)]
    pub least_rounds: Option<u32>,
    /// For [`Design::most_rounds`]; 6 by default.
    #[serde(default)]
    pub most_rounds: Option<u32>,
    /// For [`Design::limit`]; 2 minutes by default.
    #[serde(default)]
    pub limit: Option<SignedDuration>,
}

impl Scenario {
    /// The scenario for an answer in a minute or two: fewer cells, shorter trials, fewer rounds.
    pub fn quick(mut self) -> Scenario {
        let quick = std::mem::take(&mut self.quick);
        self.axes.extend(quick.axes);
        if !quick.variants.is_empty() {
            self.variants.retain(|name, _| quick.variants.contains(name));
        }
        self.load.seconds = quick.seconds.unwrap_or("1".into());
        self.load.warmup = quick.warmup.unwrap_or("0.2".into());
        self.design.least_rounds = quick.least_rounds.unwrap_or(6);
        self.design.most_rounds = quick.most_rounds.unwrap_or(6);
        self.design.limit = quick.limit.unwrap_or(SignedDuration::from_mins(2));
        self
    }
}

impl Scenario {
    /// Drops the variants that are not named, except the baseline.
    pub fn keep_variants(&mut self, names: &[String]) -> Result<(), FieldError> {
        for name in names {
            check::one_of("--only", name, self.variants.keys())?;
        }
        let baseline = &self.baseline;
        self.variants.retain(|name, _| name == baseline || names.contains(name));
        Ok(())
    }

    /// Replaces the values of an existing axis.
    pub fn set_axis(&mut self, axis: &str, values: Vec<Text>) -> Result<(), FieldError> {
        check::one_of("--axis", axis, self.axes.keys())?;
        if self.depends_on(axis) {
            let known: Vec<String> = self.axes[axis].iter().map(|each| each.raw().into()).collect();
            values.iter().try_for_each(|value| check::one_of(&format!("--axis {axis}"), value.raw(), known.iter()))?;
        }
        self.axes.insert(axis.into(), values);
        Ok(())
    }
}

impl Scenario {
    /// Replaces the text of an existing name.
    pub fn set_value(&mut self, name: &str, value: Text) -> Result<(), FieldError> {
        check::one_of("--set", name, self.values.keys())?;
        self.values.insert(name.into(), value);
        Ok(())
    }

    /// The combinations of the axes' values that are measured.
    pub fn cells(&self) -> Vec<Values> {
        let skipped = |cell: &Values| self.skip.iter().any(|combination| cells::among(combination, cell));
        cells::cells(&self.axes).into_iter().filter(|cell| !skipped(cell)).collect()
    }

    /// Whether anything applies only to some values of the axis: then other values would be meaningless.
    fn depends_on(&self, axis: &str) -> bool {
        let whens = self.processes.values().map(|each| &each.when).chain(self.checks.iter().map(|each| &each.when));
        let cells = whens.map(|when| &when.cells).chain(self.variants.values().map(|each| &each.cells));
        cells.into_iter().any(|cells| cells.contains_key(axis))
    }

    /// Checks numbers again, after options have changed them.
    pub fn check_numbers(&self) -> Result<(), FieldError> {
        check::check_design(self)
    }
}

impl When {
    /// Whether it applies to this variant in this cell.
    pub fn holds(&self, variant: &str, cell: &Values) -> bool {
        let variant = self.variants.is_empty() || self.variants.iter().any(|each| each == variant);
        variant && cells::among(&self.cells, cell)
    }
}
