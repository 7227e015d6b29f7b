//! What the model says about a probe.

use super::dial::Outcome;
use super::probes::{From, Probe};
use sidestep_mesh::address::Protocol;
use sidestep_mesh::capture::inbound::Inbound;
use sidestep_mesh::capture::outbound::Outbound;
use sidestep_mesh::capture::probe;
use sidestep_mesh::capture::rules::Rules;
use sidestep_mesh::capture::verdict::{Action, Verdict};

/// None: the rules do not apply to it.
pub fn verdict(rules: &Rules, probe: &Probe) -> Option<Verdict> {
    let asked = match probe.from {
        From::Pod((uid, gid)) => probe::Probe::Outbound(Outbound {
            protocol: probe.protocol,
            destination: probe.to,
            source: probe.source.address(),
            interface: probe.interface(),
            uid,
            gid,
        }),
        From::Neighbour(_) if probe.protocol != Protocol::Tcp => return None,
        From::Neighbour(interface) => probe::Probe::Inbound(Inbound { interface, destination: probe.to }),
    };
    Some(asked.verdict(rules))
}

/// The port of the listener that should answer.
pub fn listener(rules: &Rules, probe: &Probe) -> u16 {
    match verdict(rules, probe).map(|verdict| verdict.action) {
        None | Some(Action::Bypass) => probe.to.port(),
        Some(Action::Outbound(port) | Action::Inbound(port) | Action::Dns(port)) => port,
    }
}

pub fn is_captured(rules: &Rules, probe: &Probe) -> bool {
    verdict(rules, probe).is_some_and(|verdict| verdict.action != Action::Bypass)
}

/// Whether the outcome is compatible with the model.
pub fn agrees(rules: &Rules, probe: &Probe, outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Answered { seen, .. } => seen.listener == listener(rules, probe),
        // The rules name a destination; there may be no route or listener.
        Outcome::Failed(_) | Outcome::Silent => true,
    }
}

/// Kinds of outcomes; each must occur often.
pub const KINDS: [&str; 6] =
    ["refused", "failed", "direct", "to the proxy, outbound", "to the proxy, inbound", "to the proxy, DNS"];

/// One of these, or "silent".
pub fn kind(rules: &Rules, probe: &Probe, outcome: &Outcome) -> &'static str {
    let action = verdict(rules, probe).map(|verdict| verdict.action);
    match (outcome, action) {
        (Outcome::Silent, _) => "silent",
        (Outcome::Failed(libc::ECONNREFUSED), _) => "refused",
        (Outcome::Failed(_), _) => "failed",
        (_, Some(Action::Outbound(_))) => "to the proxy, outbound",
        (_, Some(Action::Inbound(_))) => "to the proxy, inbound",
        (_, Some(Action::Dns(_))) => "to the proxy, DNS",
        (_, None | Some(Action::Bypass)) => "direct",
    }
}
