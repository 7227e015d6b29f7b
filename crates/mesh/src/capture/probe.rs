//! A hypothetical connection, for asking which rule would decide on it.

use super::rules::Rules;
use super::verdict::Verdict;
use super::{inbound, outbound};

/// The properties of a connection that matter to the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe<'a> {
    /// The pod sends.
    Outbound(outbound::Outbound<'a>),
    /// The pod receives, from another pod or host.
    Inbound(inbound::Inbound<'a>),
}

impl Probe<'_> {
    /// Asks the model, not the kernel: attachments and routes do not matter.
    pub fn verdict(&self, rules: &Rules) -> Verdict {
        match self {
            Probe::Outbound(probe) => outbound::verdict(rules, probe),
            Probe::Inbound(probe) => inbound::verdict(rules, probe),
        }
    }
}
