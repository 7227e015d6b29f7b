//! The permitted differences between Sidestep and istio-iptables, with reasons. All others are errors, and each of these must
//! occur.

use super::dial::Outcome;
use super::expected;
use super::probes::{From, Probe, Source};
use super::site;
use sidestep_mesh::capture::rules::Rules;
use sidestep_testkit::greeter::Seen;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub struct Difference {
    pub name: &'static str,
    pub istio: &'static str,
    pub sidestep: &'static str,
    pub reason: &'static str,
    /// Changes istio-iptables' outcome to the one expected here, if the difference applies.
    pub translate: fn(&Case, &mut Outcome),
}

pub struct Case<'a> {
    pub rules: &'a Rules,
    pub probe: &'a Probe,
    pub ours: &'a Outcome,
}

pub const ALL: [Difference; 7] = [
    Difference {
        name: "SO_ORIGINAL_DST asked by others than the proxy",
        istio: "the address that was dialled, for any connection",
        sidestep: "what the kernel says: ENOPROTOOPT, or conntrack's answer where there is conntrack",
        reason: "who is not the proxy has no use for an answer, and is left alone",
        translate: |case, outcome| {
            if let Outcome::Answered { seen, .. } = outcome
                && ![case.rules.outbound_port, case.rules.inbound_port, site::DNS].contains(&seen.listener)
            {
                seen.original = None;
            }
        },
    },
    Difference {
        name: "The proxy's own address of an inbound connection",
        istio: "the pod's, and port 15006 (15001 from a virtual machine)",
        sidestep: "what was dialled",
        reason: "no packet is rewritten",
        translate: |case, outcome| {
            if let Some((seen, _)) = case.captured(outcome)
                && matches!(case.probe.from, From::Neighbour(_))
            {
                seen.local = case.probe.to;
            }
        },
    },
    Difference {
        name: "The proxy's own address of a connection from a port that was bound without an address, and by IPv6",
        istio: "127.0.0.1, ::1",
        sidestep: "the address that is the connection's source, if the proxy listens there; else the source is 127.0.0.1 or \
                   ::1, unless the program has chosen it",
        reason: "such a socket can be given no source any more, but the kernel chooses the right one for that address; and \
                 between the pod's IPv6 address and ::1 it cannot acknowledge what comes late",
        translate: |case, outcome| {
            if (case.has_port_only() || case.is_v6_stream())
                && let Some((seen, local)) = case.captured(outcome)
                && seen.listener != site::DNS
            {
                seen.local.set_ip(local.ip().to_canonical());
            }
        },
    },
    Difference {
        name: "The source of connections for DNS from a port that was bound without an address, and by TCP over IPv6",
        istio: "the pod's address",
        sidestep: "127.0.0.1, ::1",
        reason: "as above, but a proxy for DNS listens at the loopback only",
        translate: |case, outcome| {
            // A datagram that is sent with an address has a source of its own.
            if (case.has_port_only() || (case.is_v6_stream() && case.probe.source.address().is_none()))
                && case.is_connected()
                && let Some((seen, local)) = case.captured(outcome)
                && seen.listener == site::DNS
            {
                seen.peer.set_ip(seen.local.ip());
                local.set_ip(loopback_like(local.ip()));
            }
        },
    },
    Difference {
        name: "Another port at the proxy than the program has",
        istio: "where two connections from one port would be alike after redirection",
        sidestep: "never: connect(2) chooses a port that is free, and says EADDRNOTAVAIL for a bound one that is not",
        reason: "nobody translates ports",
        translate: |case, outcome| {
            if let Outcome::Answered { seen, local, .. } = outcome
                && [case.rules.outbound_port, case.rules.inbound_port, site::DNS].contains(&seen.listener)
                && seen.peer.port() != local.port()
            {
                if !matches!(case.probe.source, Source::Port(..)) {
                    local.set_port(0);
                }
                seen.peer.set_port(local.port());
            }
        },
    },
    Difference {
        name: "A loopback address as the source of a captured connection to elsewhere",
        istio: "EINVAL of connect(2), unless route_localnet is set",
        sidestep: "captured",
        reason: "the kernel says so of packets that would leave the pod; these do not",
        translate: |case, outcome| {
            let from_loopback = case.probe.source.address().is_some_and(|ip| ip.to_canonical().is_loopback());
            if *outcome == Outcome::Failed(libc::EINVAL) && from_loopback && case.probe.interface() != "lo" {
                case.take_captured(outcome);
            }
        },
    },
    Difference {
        name: "A captured socket that is bound to an interface (SO_BINDTODEVICE, or a link-local destination)",
        istio: "packets are lost, since 127.0.0.1 cannot be reached by that interface; errors for a destination without a \
                route are of the interface",
        sidestep: "captured, at the pod's address of that interface; not for DNS, which fails at once. Errors are of the \
                   route",
        reason: "better than a time-out",
        translate: |case, outcome| {
            let has_device = case.probe.device.is_some_and(|device| device != "lo") || case.probe.is_of_link();
            // Some of these datagrams arrive, since the socket itself is not bound.
            let is_datagram = case.probe.is_of_link() && !case.is_connected();
            if has_device && (is_datagram || !matches!(outcome, Outcome::Answered { .. })) {
                case.take_captured(outcome);
                case.take_failed(outcome);
            }
        },
    },
];

impl Case<'_> {
    /// The proxy's view, and the program's local address.
    fn captured<'a>(&self, outcome: &'a mut Outcome) -> Option<(&'a mut Seen, &'a mut SocketAddr)> {
        match outcome {
            Outcome::Answered { seen, local, .. } if self.is_captured() => Some((seen, local)),
            _ => None,
        }
    }

    fn is_captured(&self) -> bool {
        expected::is_captured(self.rules, self.probe)
    }

    fn has_port_only(&self) -> bool {
        matches!(self.probe.source, Source::Port(..)) && self.probe.source.address().is_none()
    }

    /// A stream to the pod itself. The destination decides: a socket bound to an IPv4 address reaches no other family.
    fn is_v6_stream(&self) -> bool {
        let is_own = !matches!(self.probe.from, From::Neighbour(_));
        is_own && self.probe.is_tcp() && self.probe.to.ip().to_canonical().is_ipv6()
    }

    fn is_connected(&self) -> bool {
        self.probe.is_tcp() || self.probe.connected
    }

    /// Takes our outcome if both the proxy and the program are told everything about it.
    fn take_captured(&self, outcome: &mut Outcome) {
        let Outcome::Answered { seen, peer, .. } = self.ours else { return };
        let dialled = SocketAddr::new(self.probe.to.ip().to_canonical(), self.probe.to.port());
        let original = self.probe.is_tcp().then_some(dialled);
        let is_peer = (peer.ip(), peer.port()) == (self.probe.to.ip(), self.probe.to.port());
        if self.is_captured() && is_peer && seen.original == original {
            *outcome = self.ours.clone();
        }
    }

    fn take_failed(&self, outcome: &mut Outcome) {
        if self.is_captured() && matches!(self.ours, Outcome::Failed(_)) {
            *outcome = self.ours.clone();
        }
    }
}

/// The loopback address of the same family.
fn loopback_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}
