//! How often everything is measured, and when that is enough.

use super::text::Text;
use crate::meter::Calm;
use crate::result::Figure;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// The scenario's `design`; a missing field has the value of the default.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Design {
    /// The judged figures, which decide on precision and come first in tables.
    pub judge: Vec<Figure>,
    /// Half the width of a sufficiently narrow interval, relative to the ratio.
    pub precision: f64,
    /// Of the intervals, as a part of 1.
    pub confidence: f64,
    /// How many rounds each cell has at least, however precise it is.
    pub least_rounds: u32,
    /// How many rounds each cell has at most.
    pub most_rounds: u32,
    /// Time limit for the run.
    pub limit: SignedDuration,
    /// How long a set-up's processes live.
    pub restart: Restart,
    /// Whether the baseline takes part twice.
    pub control: bool,
    /// A trial is repeated if the hypervisor took more than this part of the machine's capacity.
    pub steal: f64,
    /// A trial is repeated if programs that are not the scenario's took more than this part of the machine's capacity.
    pub foreign: f64,
    /// A trial has failed if more than this part of its requests failed: error answers are quick.
    pub errors: f64,
}

impl Default for Design {
    fn default() -> Design {
        Design {
            judge: vec![Figure::P50, Figure::P90],
            precision: 0.05,
            confidence: 0.95,
            least_rounds: 8,
            most_rounds: 40,
            limit: SignedDuration::from_mins(15),
            restart: Restart::Rounds(1),
            control: true,
            steal: Calm::default().steal,
            foreign: Calm::default().foreign,
            errors: 0.01,
        }
    }
}

/// When processes are restarted. A single process's luck (memory layout, hash seeds) is not a property of its variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub enum Restart {
    /// For every trial: only one set-up exists at a time.
    Trial,
    /// After so many rounds: all set-ups exist at the same time.
    Rounds(u32),
    /// Every set-up exists until the run ends.
    Never,
}
