//! Where Sidestep and istio-iptables differ, and why. What is not here must be equal; what is here must be found.

use super::super::greeter::Seen;
use super::dial::Outcome;
use super::expected;
use super::probes::{From, Probe, Source};
use super::site;
use sidestep_mesh::capture::rules::Rules;
use std::net::SocketAddr;

pub struct Difference {
    pub name: &'static str,
    pub reason: &'static str,
    /// Makes of istio-iptables' outcome the one that is to be expected here. Leaves alone what it is not about.
    pub translate: fn(&Rules, &Probe, &mut Outcome, &Outcome),
}

pub const ALL: [Difference; 6] = [
    Difference {
        name: "what a connection was redirected from, asked by others than the proxy",
        reason: "conntrack has an answer for every connection, redirected or not; without it there is none, and who is not \
                 the proxy has no use for one",
        translate: |rules, _, outcome, _| {
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
        translate: |_, probe, outcome, _| {
            let Outcome::Answered { seen, .. } = outcome else { return };
            if matches!(probe.from, From::Neighbour(_)) && seen.listener != probe.to.port() {
                seen.local = probe.to;
            }
        },
    },
    Difference {
        name: "the proxy's own address of a connection from a bound port",
        reason: "a socket with a port can get no other source any more; the kernel chooses the right one if the proxy is \
                 dialled there, which is then the proxy's own address instead of 127.0.0.1",
        translate: |_, probe, outcome, _| {
            let Outcome::Answered { seen, local, .. } = outcome else { return };
            let has_port_only = matches!(probe.source, Source::Port(..)) && probe.source.address().is_none();
            if has_port_only && is_captured(seen, probe) && seen.listener != site::DNS {
                seen.local.set_ip(local.ip().to_canonical());
            }
        },
    },
    Difference {
        name: "another port at the proxy than the program has",
        reason: "conntrack changes ports where two connections of one port would have the same tuple after redirection; \
                 here connect(2) chooses a port that is free",
        translate: |_, probe, outcome, _| {
            let Outcome::Answered { seen, local, .. } = outcome else { return };
            if is_captured(seen, probe) && !matches!(probe.source, Source::Port(..)) {
                seen.peer.set_port(0);
                local.set_port(0);
            }
        },
    },
    Difference {
        name: "a loopback address as the source of a captured connection to elsewhere",
        reason: "without route_localnet the kernel refuses it (EINVAL) before any rule is asked; here it reaches the proxy",
        translate: |rules, probe, outcome, ours| {
            let from_loopback = probe.source.address().is_some_and(|ip| ip.to_canonical().is_loopback());
            if *outcome == Outcome::Failed(libc::EINVAL) && from_loopback && probe.interface() != "lo" {
                take_captured(rules, probe, outcome, ours);
            }
        },
    },
    Difference {
        name: "a captured socket that is bound to an interface",
        reason: "after redirection there is no route to 127.0.0.1 by that interface, and packets are lost; here the proxy is \
                 dialled at the interface's address",
        translate: |rules, probe, outcome, ours| {
            if probe.device.is_some_and(|device| device != "lo") && !matches!(outcome, Outcome::Answered { .. }) {
                take_captured(rules, probe, outcome, ours);
            }
        },
    },
];

fn is_captured(seen: &Seen, probe: &Probe) -> bool {
    matches!(probe.from, From::Pod(_)) && seen.listener != probe.to.port()
}

/// Ours, if the proxy knows everything about it.
fn take_captured(rules: &Rules, probe: &Probe, outcome: &mut Outcome, ours: &Outcome) {
    let Outcome::Answered { seen, peer, .. } = ours else { return };
    let dialled = SocketAddr::new(probe.to.ip().to_canonical(), probe.to.port());
    let listener = expected::listener(rules, probe);
    if *peer == probe.to && seen.original == Some(dialled) && seen.listener == listener && listener != dialled.port() {
        *outcome = ours.clone();
    }
}
