//! One run of the lab, with everything that is needed to judge it again or to do it again: the file `lab run` writes.

mod figure;
mod file;
mod goal;
mod look;
mod machine;
mod profile;
mod usage;

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

/// Of the file; another number is another layout.
pub const FORMAT: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// `FORMAT`
    pub format: u32,
    /// Of Sidestep.
    pub version: String,
    /// What was typed.
    pub command: Vec<String>,
    pub begun: Timestamp,
    pub seconds: f64,
    /// Why it ended: all intervals are as narrow as they should be, the time was over, it was interrupted.
    pub ended: Ended,
    /// From which the order of trials comes.
    pub seed: u64,
    pub machine: Machine,
    /// Of everything that was started, by name.
    pub programs: IndexMap<String, Program>,
    pub scenario: About,
    /// In the order of the scenario; the control comes last.
    pub variants: Vec<Variant>,
    pub cells: Vec<Cell>,
    /// What a reader has to know: variants that could not take part, cells that were given up.
    pub notes: Vec<String>,
    /// What the scenario's checks complained about: figures of a set-up that does the wrong thing are worth nothing.
    #[serde(default)]
    pub wrong: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// All intervals are as narrow as they should be, or all rounds are done.
    Done,
    /// The time limit came first.
    TimeLimit,
    Interrupted,
}

/// What of the scenario the report tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    pub name: String,
    pub about: String,
    /// The whole file, as it was read.
    pub text: String,
    /// Figures by which precision is decided and which tables show first.
    pub judged: Vec<Figure>,
    /// Half the width of an interval that is narrow enough, as a part of the ratio: 0.05.
    pub precision: f64,
    /// Of the intervals: 0.95.
    pub confidence: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Goal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// The experiment that a scenario reproduces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Title, authors, year.
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// On what it was measured.
    pub setup: String,
    /// What was claimed.
    #[serde(default)]
    pub figures: Vec<PublishedFigure>,
    /// How this scenario differs from it, and what could not be had.
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
    pub improved: String,
    /// As published or calculated: `-71 %`.
    pub change: String,
    /// Where it stands beside ours: values of axes. Empty: beside none.
    #[serde(default)]
    pub cell: IndexMap<String, String>,
    /// With which of our variants it is compared, and by which figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<Figure>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Variant {
    pub name: String,
    pub about: String,
    /// What everybody is compared with.
    pub baseline: bool,
    /// The baseline once more: whoever finds a difference between the two is wrong.
    pub control: bool,
}

/// One choice of values for the axes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// axis -> value; empty where the scenario has no axes.
    pub values: IndexMap<String, String>,
    /// Who takes part.
    #[serde(default)]
    pub variants: Vec<String>,
    /// In the order in which they were taken, those that were repeated too.
    pub trials: Vec<Trial>,
    /// Where CPU time went, of each variant that was sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
}

/// One load on one variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    pub variant: String,
    pub round: u32,
    /// Seconds after the run's beginning.
    pub at: f64,
    /// None where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    pub usage: Usage,
    /// What shows that the load took this variant's way: bytes of the load tool's connections by ring, bytes spliced.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub moved: IndexMap<String, u64>,
    /// Something else was at work on the machine meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<Disturbance>,
    /// A later trial of the same round and variant counts instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// A result has no such variant.
#[derive(Debug, thiserror::Error)]
#[error("--baseline: '{name}' is none of {}", known.join(", "))]
pub struct NoVariant {
    pub name: String,
    pub known: Vec<String>,
}

impl Run {
    /// The same trials, compared with another variant. The control was the other baseline's.
    pub fn beside(mut self, name: &str) -> Result<Run, NoVariant> {
        self.variants.retain(|variant| !variant.control);
        if !self.variants.iter().any(|variant| variant.name == name) {
            let known = self.variants.into_iter().map(|variant| variant.name).collect();
            return Err(NoVariant { name: name.into(), known });
        }
        self.variants.iter_mut().for_each(|variant| variant.baseline = variant.name == name);
        Ok(self)
    }

    /// Who has no figures in a cell and should have, and why.
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
    /// Whether its figures count.
    pub fn counts(&self) -> bool {
        self.outcome.is_some() && !self.repeated
    }
}

impl Cell {
    /// `connections 64, rate 1000`; empty where the scenario has no axes.
    pub fn title(&self) -> String {
        let words: Vec<String> = self.values.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
        words.join(", ")
    }

    /// A figure of each counting trial of a variant: round -> value.
    pub fn values_of(&self, variant: &str, figure: Figure) -> IndexMap<u32, f64> {
        let counting = self.trials.iter().filter(|trial| trial.variant == variant && trial.counts());
        counting.filter_map(|trial| Some((trial.round, figure.of(trial)?))).collect()
    }
}
