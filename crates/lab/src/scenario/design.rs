//! How often everything is measured, and when that is enough.

use super::text::Text;
use crate::meter::Calm;
use crate::result::Figure;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Design {
    /// By these figures precision is judged; tables show them first.
    pub judge: Vec<Figure>,
    /// Half the width of an interval that is narrow enough, as a part of the ratio.
    pub precision: f64,
    pub confidence: f64,
    pub least_rounds: u32,
    pub most_rounds: u32,
    /// The run ends by then, whatever has been reached.
    pub limit: SignedDuration,
    pub restart: Restart,
    /// The baseline takes part twice.
    pub control: bool,
    /// A trial in which the hypervisor, or programs that are none of the scenario's, took more than this part of the machine
    /// is done again.
    pub steal: f64,
    pub foreign: f64,
    /// A trial of whose requests more than this part failed has failed: answers that say no are quick.
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

/// When processes are started anew: one process's luck (its memory's layout, its hash seeds) is no property of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "String")]
pub enum Restart {
    /// For every trial: only one set-up stands at a time.
    Trial,
    /// After so many rounds; all set-ups stand beside each other.
    Rounds(u32),
    Never,
}
