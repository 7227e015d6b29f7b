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
pub use check::{LOAD, NODE};
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

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    /// What question it answers.
    pub about: String,
    #[serde(default)]
    pub published: Option<Published>,
    /// axis -> its values; each combination is a cell.
    #[serde(default)]
    pub axes: IndexMap<String, Vec<Text>>,
    /// Cells that are not measured: axis -> values; a cell that is among all of one of them is left out.
    #[serde(default)]
    pub skip: Vec<IndexMap<String, Vec<Text>>>,
    /// Names for use in templates; a variant may give others.
    #[serde(default)]
    pub values: IndexMap<String, Text>,
    /// Network namespaces, each joined to the one called `node`, which is always there.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Commands that run once, before everything else. What they leave for others goes into `${shared}`.
    #[serde(default)]
    pub prepare: Vec<Vec<Text>>,
    /// Files of `${dir}`, written anew for each set-up.
    #[serde(default)]
    pub files: IndexMap<String, Text>,
    /// Commands that run in each set-up before its rules are loaded and anything is started.
    #[serde(default)]
    pub setup: Vec<Setup>,
    #[serde(default)]
    pub processes: IndexMap<String, Process>,
    pub variants: IndexMap<String, Variant>,
    /// Of the variants: what the others are compared with.
    pub baseline: String,
    pub load: Load,
    /// Commands that fail if something is not as it should be: an answer is wrong, the load took another way. They run after
    /// a set-up's first trial, as the load does. If one fails, its set-up's trials do not count, and the run is no success.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// What is to be reached; the report says whether it was.
    #[serde(default)]
    pub goals: Vec<Goal>,
    #[serde(default)]
    pub design: Design,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
}

/// A server, or whatever else runs while the load does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Program and arguments.
    pub run: Vec<Text>,
    #[serde(default)]
    pub env: IndexMap<String, Text>,
    /// Where it runs; `node` if nothing is said.
    #[serde(default)]
    pub namespace: Option<String>,
    /// As taskset(1) takes it: `0`, `1-3`.
    #[serde(default)]
    pub cpus: Option<Text>,
    /// `UID` or `UID:GID`.
    #[serde(default)]
    pub user: Option<User>,
    /// Without it a process is ready when it has been started.
    #[serde(default)]
    pub ready: Ready,
    /// It disturbs on purpose: what it uses is shown, and counts as nobody's cost.
    #[serde(default)]
    pub background: bool,
    /// Only where all of these hold.
    #[serde(default)]
    pub when: When,
}

/// Variants and values of axes that something is for; an empty one is for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    #[serde(default)]
    pub variants: Vec<String>,
    /// axis -> values
    #[serde(default)]
    pub cells: IndexMap<String, Vec<Text>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// All that is named has to be there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// It listens at this TCP port; nobody connects to find out.
    #[serde(default)]
    pub port: Option<Text>,
    /// This file, or socket, is there.
    #[serde(default)]
    pub path: Option<Text>,
    /// How long that may take.
    #[serde(default)]
    pub seconds: Option<Text>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    #[serde(default)]
    pub run: Vec<Text>,
    /// Instead: ways that bytes of the trial's load have gone, as results call them (`by ring`, `spliced in pod`).
    #[serde(default)]
    pub moved: Vec<String>,
    #[serde(default)]
    pub when: When,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub tool: Tool,
    /// A URL, or `ADDRESS:PORT`.
    #[serde(default)]
    pub target: Text,
    #[serde(default = "one")]
    pub connections: Text,
    #[serde(default = "one")]
    pub threads: Text,
    /// Requests a second of an open loop; without it, or 0, connections wait for their answers.
    #[serde(default)]
    pub rate: Option<Text>,
    #[serde(default = "two")]
    pub seconds: Text,
    /// Of the same load, before each measurement.
    #[serde(default = "warm")]
    pub warmup: Text,
    /// Seconds that it may take longer, to start and to get its last answers; then it is ended, and the trial has failed.
    #[serde(default = "patience")]
    pub patience: Text,
    #[serde(default)]
    pub body: Option<Text>,
    #[serde(default)]
    pub requests: Option<Text>,
    #[serde(default)]
    pub options: Vec<Text>,
    /// Of the tools `command` and `json`: program and arguments.
    #[serde(default)]
    pub command: Vec<Text>,
    #[serde(default)]
    pub env: IndexMap<String, Text>,
    #[serde(default)]
    pub namespace: Option<String>,
    #[serde(default)]
    pub cpus: Option<Text>,
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

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    #[serde(default)]
    pub axes: IndexMap<String, Vec<Text>>,
    #[serde(default)]
    pub variants: Vec<String>,
    #[serde(default)]
    pub seconds: Option<Text>,
    #[serde(default)]
    pub warmup: Option<Text>,
    #[serde(default)]
    pub least_rounds: Option<u32>,
    #[serde(default)]
    pub most_rounds: Option<u32>,
    #[serde(default)]
    pub limit: Option<SignedDuration>,
}

impl Scenario {
    /// What is measured in a minute or two: fewer cells, shorter trials, fewer rounds.
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
    /// Without the variants that are not named, but with the baseline.
    pub fn keep_variants(&mut self, names: &[String]) -> Result<(), FieldError> {
        for name in names {
            check::one_of("--only", name, self.variants.keys())?;
        }
        let baseline = &self.baseline;
        self.variants.retain(|name, _| name == baseline || names.contains(name));
        Ok(())
    }

    /// Other values for an axis that there is.
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
    /// Another text for a name that there is.
    pub fn set_value(&mut self, name: &str, value: Text) -> Result<(), FieldError> {
        check::one_of("--set", name, self.values.keys())?;
        self.values.insert(name.into(), value);
        Ok(())
    }

    /// Combinations of the axes' values that are measured.
    pub fn cells(&self) -> Vec<Values> {
        let skipped = |cell: &Values| self.skip.iter().any(|combination| cells::among(combination, cell));
        cells::cells(&self.axes).into_iter().filter(|cell| !skipped(cell)).collect()
    }

    /// Whether something is there for some values of an axis only: then others would mean nothing.
    fn depends_on(&self, axis: &str) -> bool {
        let whens = self.processes.values().map(|each| &each.when).chain(self.checks.iter().map(|each| &each.when));
        let cells = whens.map(|when| &when.cells).chain(self.variants.values().map(|each| &each.cells));
        cells.into_iter().any(|cells| cells.contains_key(axis))
    }

    /// Once more, after options have changed something.
    pub fn check_numbers(&self) -> Result<(), FieldError> {
        check::check_design(self)
    }
}

impl When {
    pub fn holds(&self, variant: &str, cell: &Values) -> bool {
        let variant = self.variants.is_empty() || self.variants.iter().any(|each| each == variant);
        variant && cells::among(&self.cells, cell)
    }
}
