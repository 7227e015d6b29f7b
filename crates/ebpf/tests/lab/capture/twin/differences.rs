//! Where Sidestep and istio-iptables differ, and why. What is not here must be equal; what is here must be found.

use super::dial::Outcome;
use super::probes::{From, Probe};
use super::site;
use sidestep_mesh::capture::rules::Rules;

pub struct Difference {
    pub name: &'static str,
    pub reason: &'static str,
    /// Makes of istio-iptables' outcome the one that is to be expected here. Leaves alone what it is not about.
    pub translate: fn(&Rules, &Probe, &mut Outcome),
}

pub const ALL: [Difference; 2] = [
    Difference {
        name: "what a connection was redirected from, asked by others than the proxy",
        reason: "conntrack has an answer for every connection, redirected or not; without it there is none, and who is not \
                 the proxy has no use for one",
        translate: |rules, _, outcome| {
            let Outcome::Answered { seen, .. } = outcome else { return };
            if ![rules.outbound_port, rules.inbound_port, site::DNS].contains(&seen.listener) {
                seen.original = None;
            }
        },
    },
    Difference {
        name: "the proxy's own address of an inbound connection",
        reason: "a redirection gives the packet another address, the proxy's; at the socket it keeps its own, which is what \
                 was dialled",
        translate: |rules, probe, outcome| {
            let Outcome::Answered { seen, .. } = outcome else { return };
            if matches!(probe.from, From::Neighbour(_)) && seen.listener != probe.to.port() {
                seen.local = probe.to;
            }
        },
    },
];
