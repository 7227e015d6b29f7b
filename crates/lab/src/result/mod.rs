//! One run of the lab, with everything that is needed to judge it again or to repeat it: the file that `lab run` writes.

mod carried;
mod figure;
mod file;
mod goal;
mod look;
mod machine;
mod profile;
mod usage;

pub use carried::Carried;
pub use figure::{Better, Figure};
pub use file::{ReadError, may_write, read, write};
pub use goal::Goal;
pub use machine::{Machine, Program};
pub use profile::{ProcessProfile, Profile};
pub use usage::{Disturbance, ProcessUsage, Usage};

use crate::load::Outcome;
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Version of the file's layout.
pub const FORMAT: u32 = 1;

/// The content of a result file. Reports are computed from it, and so is `lab compare`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// `FORMAT`
    pub format: u32,
    /// Sidestep's version.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// When the run began.
    pub begun: Timestamp,
    /// How long the run took, with everything that is not measured.
    pub seconds: f64,
    /// Why the run ended.
    pub ended: Ended,
    /// The seed of the trials' order.
    pub seed: u64,
    /// Where it was measured.
    pub machine: Machine,
    /// All programs that were started, by name.
    pub programs: IndexMap<String, Program>,
    /// From the scenario's file, so that a report needs no other file.
    pub scenario: About,
    /// In the scenario's order; the control is last.
    pub variants: Vec<Variant>,
    /// In the scenario's order; cells that were given up are among them.
    pub cells: Vec<Cell>,
    /// variant -> program -> bytes of its connections in all set-ups, of those that ran under Sidestep and ended by themselves.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub carried: IndexMap<String, IndexMap<String, Carried>>,
    /// What a reader must know: variants that could not take part, cells that were given up.
    pub notes: Vec<String>,
    /// Failures of the scenario's checks: the figures of a set-up that does the wrong thing are worthless.
    #[serde(default)]
    pub wrong: Vec<String>,
}

/// Why no further rounds were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// All intervals are narrow enough, or all rounds are done.
    Done,
    /// The time limit was reached.
    TimeLimit,
    /// By Ctrl-C: the trial under way was dropped. Also what a run says that was killed.
    Interrupted,
}

/// The parts of the scenario that reports need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// The scenario's name.
    pub name: String,
    /// The question that it answers.
    pub about: String,
    /// The whole file, as read.
    pub text: String,
    /// The judged figures, which decide on precision and come first in tables.
    pub judged: Vec<Figure>,
    /// Half the width of a sufficiently narrow interval, relative to the ratio: 0.05.
    pub precision: f64,
    /// Confidence of the intervals: 0.95.
    pub confidence: f64,
    /// Limits that the report compares the result with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Goal>,
    /// As in the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// The experiment that a scenario reproduces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Title, authors, year.
    pub source: String,
    /// Where the source can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The machine and software of the experiment.
    pub setup: String,
    /// The published figures.
    #[serde(default)]
    pub figures: Vec<PublishedFigure>,
    /// How this scenario differs from the experiment, and what was not available.
    #[serde(default)]
    pub differs: Vec<String>,
}

/// A line of the published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// What was measured: `10 MB, transfer time`.
    pub what: String,
    /// As published, with its unit: `9.2 ms`.
    pub baseline: String,
    /// With what the authors propose, as published.
    pub improved: String,
    /// As published or calculated: `-71 %`.
    pub change: String,
    /// The cell with which it is compared: values of axes. Empty: none.
    #[serde(default)]
    pub cell: IndexMap<String, String>,
    /// The variant with which it is compared. None: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// None: there is no figure of the lab like it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<Figure>,
}

/// A variant of the scenario as reports need it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Variant {
    /// From the scenario; the control is called `BASELINE (again)`.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// The variant with which all others are compared.
    pub baseline: bool,
    /// The baseline a second time: any difference between the two is an error.
    pub control: bool,
}

/// One choice of values for the axes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// axis -> value; empty if the scenario has no axes.
    pub values: IndexMap<String, String>,
    /// The variants that take part.
    #[serde(default)]
    pub variants: Vec<String>,
    /// In the order in which they were taken, including those that were repeated.
    pub trials: Vec<Trial>,
    /// Where CPU time went, for each sampled variant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
}

/// One load on one variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// One of [`Run::variants`].
    pub variant: String,
    /// From 0. Trials of the same round are compared with each other.
    pub round: u32,
    /// Seconds since the run's beginning.
    pub at: f64,
    /// None: the trial failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why there is no outcome, in words. None: the trial succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Costs during the trial; zero if it failed early.
    pub usage: Usage,
    /// Evidence that the load took this variant's way: bytes of the load tool's connections by ring, bytes spliced.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub moved: IndexMap<String, u64>,
    /// What the scenario's checks have said after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noted: Vec<String>,
    /// Other load disturbed the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<Disturbance>,
    /// A later trial of the same round and variant counts in its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// The result has no variant of this name.
#[derive(Debug, thiserror::Error)]
#[error("--baseline: '{name}' is none of {}", known.join(", "))]
pub struct NoVariant {
    /// What the option said.
    pub name: String,
    /// The result's variants.
    pub known: Vec<String>,
}

impl Run {
    /// The same trials, compared with another variant. The control is dropped, since it belongs to the original baseline.
    pub fn beside(mut self, name: &str) -> Result<Run, NoVariant> {
        self.variants.retain(|variant| !variant.control);
        if !self.variants.iter().any(|variant| variant.name == name) {
            let known = self.variants.into_iter().map(|variant| variant.name).collect();
            return Err(NoVariant { name: name.into(), known });
        }
        self.variants.iter_mut().for_each(|variant| variant.baseline = variant.name == name);
        Ok(self)
    }

    /// Variants without figures in a cell in which they take part, and why.
    pub fn missing(&self) -> Vec<String> {
        let pairs = self.cells.iter().flat_map(|cell| self.variants.iter().map(move |variant| (cell, &variant.name)));
        let missing = pairs.filter_map(|(cell, variant)| {
            let trials = || cell.trials.iter().filter(|trial| trial.variant == *variant);
            let failure = trials().filter_map(|trial| trial.failure.as_deref()).next_back();
            let never = cell.variants.contains(variant).then_some("it had no trial");
            let why = failure.or(never)?;
            let place = [variant.clone(), cell.title()].into_iter().filter(|part| !part.is_empty());
            (!trials().any(Trial::counts)).then(|| format!("{}: {why}", place.collect::<Vec<_>>().join(", ")))
        });
        missing.collect()
    }
}

impl Trial {
    /// Whether the trial's figures count.
    pub fn counts(&self) -> bool {
        self.outcome.is_some() && !self.repeated
    }
}

impl Cell {
    /// `connections 64, rate 1000`; empty if the scenario has no axes.
    pub fn title(&self) -> String {
        let words: Vec<String> = self.values.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
        words.join(", ")
    }

    /// A figure of each trial of a variant that counts: round -> value.
    pub fn values_of(&self, variant: &str, figure: Figure) -> IndexMap<u32, f64> {
        let counting = self.trials.iter().filter(|trial| trial.variant == variant && trial.counts());
        counting.filter_map(|trial| Some((trial.round, figure.of(trial)?))).collect()
    }
}
