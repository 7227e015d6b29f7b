//! How often everything is measured, and when that is enough.

use super::text::Text;
use crate::meter::Calm;
use crate::result::Figure;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Design {
    /// The judged figures, which decide on precision and come first in tables.
    pub judge: Vec<Figure>,
    /// Half the width of a sufficiently narrow interval, relative to the ratio.
    pub precision: f64,
    pub confidence: f64,
    pub least_rounds: u32,
    pub most_rounds: u32,
    /// Time limit for the run.
    pub limit: SignedDuration,
    pub restart: Restart,
    /// Whether the baseline takes part twice.
    pub control: bool,
    /// A trial is repeated if the hypervisor took more than `steal`, or foreign programs more than `foreign`, of the machine's
    /// capacity.
    pub steal: f64,
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
    Never,
}
