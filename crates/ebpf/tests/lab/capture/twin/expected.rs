//! What the evaluator says of a probe.

use super::dial::Outcome;
use super::probes::{From, Probe};
use sidestep_mesh::address::Protocol;
use sidestep_mesh::capture::inbound::Inbound;
use sidestep_mesh::capture::outbound::Outbound;
use sidestep_mesh::capture::rules::Rules;
use sidestep_mesh::capture::verdict::{self, Action, Verdict};

/// None: the rules are not about it.
pub fn verdict(rules: &Rules, probe: &Probe) -> Option<Verdict> {
    let asked = match probe.from {
        From::Pod((uid, gid)) => verdict::Probe::Outbound(Outbound {
            protocol: probe.protocol,
            destination: probe.to,
            source: probe.source.address(),
            interface: probe.interface(),
            uid,
            gid,
        }),
        From::Neighbour(_) if probe.protocol != Protocol::Tcp => return None,
        From::Neighbour(interface) => verdict::Probe::Inbound(Inbound { interface, destination: probe.to }),
    };
    Some(asked.verdict(rules))
}

/// The listener that answers, if any does.
pub fn listener(rules: &Rules, probe: &Probe) -> u16 {
    match verdict(rules, probe).map(|verdict| verdict.action) {
        None | Some(Action::Bypass) => probe.to.port(),
        Some(Action::Outbound(port) | Action::Inbound(port) | Action::Dns(port)) => port,
    }
}

/// Whether the outcome may be what the evaluator says.
pub fn agrees(rules: &Rules, probe: &Probe, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Answered { seen, .. } => seen.listener == listener(rules, probe),
        // The rules say where to, not whether there is a way or anybody.
        Outcome::Failed(_) | Outcome::Silent => true,
    }
}
