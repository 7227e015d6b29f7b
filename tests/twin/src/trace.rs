//! The trace of a run: what it reports about each step.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub step: usize,
    pub at: u8,
    /// The line has the result of a call of the earlier step `step`, which had blocked; it returned after step `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<usize>,
    /// The call has not returned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocks: bool,
    pub text: String,
    /// Events of an epoll set as (data, mask), in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<(u64, u32)>,
    /// The call has written beyond the bytes that it reports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub behind: bool,
    /// Duration in milliseconds; not compared.
    #[serde(default)]
    pub ms: u64,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = if self.blocks { "blocks" } else { &self.text };
        write!(f, "{text}")?;
        for (data, mask) in &self.events {
            write!(f, " {data:#x}:{mask:#x}")?;
        }
        f.write_str(if self.behind { " (and wrote behind it)" } else { "" })
    }
}

/// Output of the program that executes steps: one line of JSON each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Printed {
    Line(Line),
    /// The operator is to act; the answer is a line on standard input.
    Operator {
        detach: bool,
    },
    /// A connection has been warmed up, and whether its bytes went by ring then.
    Warm {
        ring: bool,
    },
    End,
}
