//! A connection that is not there: what would become of it.

use super::rules::Rules;
use super::verdict::Verdict;
use super::{inbound, outbound};

/// A connection, as far as the rules look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe<'a> {
    Outbound(outbound::Outbound<'a>),
    Inbound(inbound::Inbound<'a>),
}

impl Probe<'_> {
    pub fn verdict(&self, rules: &Rules) -> Verdict {
        match self {
            Probe::Outbound(probe) => outbound::verdict(rules, probe),
            Probe::Inbound(probe) => inbound::verdict(rules, probe),
        }
    }
}
