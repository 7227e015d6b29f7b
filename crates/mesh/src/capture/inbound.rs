//! The rules for a TCP connection to the pod.

use super::rules::{InboundPorts, Ranges, Rules};
use super::verdict::{Action, Rule, Verdict};
use std::net::SocketAddr;

/// Connections over `lo` do not count: they were decided on when they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound<'a> {
    /// The interface by which it arrives.
    pub interface: &'a str,
    /// What the client dialled. The address counts only for virtual interfaces; `::ffff:a.b.c.d` is IPv4.
    pub destination: SocketAddr,
}

/// Applies the lines INPUT 1 to 4 of the [table](super).
pub fn verdict(rules: &Rules, probe: &Inbound) -> Verdict {
    let at = |interfaces: &[String]| interfaces.iter().any(|name| name == probe.interface);
    let (rule, action) = if at(&rules.virtual_interfaces) {
        (Rule::InputVirtual, of_the_machine(rules, probe))
    } else if at(&rules.exclude_interfaces) {
        (Rule::InputInterface, Action::Bypass)
    } else if probe.destination.port() == rules.tunnel_port {
        (Rule::InputTunnel, Action::Bypass)
    } else {
        of_the_pod(rules, probe.destination.port())
    };
    Verdict { action, rule }
}

/// The outbound traffic of a virtual machine: only the included ranges count.
fn of_the_machine(rules: &Rules, probe: &Inbound) -> Action {
    let ip = probe.destination.ip().to_canonical();
    let is_included = match &rules.include_outbound_ranges {
        Ranges::All => true,
        Ranges::These(ranges) => ranges.iter().any(|range| range.contains(&ip)),
    };
    if is_included { Action::Outbound(rules.outbound_port) } else { Action::Bypass }
}

fn of_the_pod(rules: &Rules, port: u16) -> (Rule, Action) {
    let captured = Action::Inbound(rules.inbound_port);
    match &rules.inbound_ports {
        InboundPorts::AllBut(ports) if ports.contains(&port) => (Rule::InputPort, Action::Bypass),
        InboundPorts::AllBut(_) => (Rule::InputPort, captured),
        InboundPorts::Only(ports) if ports.contains(&port) => (Rule::InputPort, captured),
        InboundPorts::Only(_) => (Rule::InputNone, Action::Bypass),
    }
}
