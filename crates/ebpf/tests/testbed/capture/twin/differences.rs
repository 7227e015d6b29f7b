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
        name: "SO_ORIGINAL_DST in a program that is not the proxy",
        istio: "the original destination, for any connection",
        sidestep: "the kernel's answer: ENOPROTOOPT, or that of conntrack if it is active",
        reason: "only the proxy needs the original destination, so other programs are not affected",
        translate: |case, outcome| {
            if let Outcome::Answered { seen, .. } = outcome
                && ![case.rules.outbound_port, case.rules.inbound_port, site::DNS].contains(&seen.listener)
            {
                seen.original = None;
            }
        },
    },
    Difference {
        name: "Local address of an inbound connection at the proxy",
        istio: "the pod's address, and port 15006 (15001 from a virtual machine)",
        sidestep: "the original destination",
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
        name: "Local address, at the proxy, of an outbound connection from a port that was bound without an address, \
               or by IPv6",
        istio: "127.0.0.1, ::1",
        sidestep: "the connection's source address, if the proxy listens there; else the source is 127.0.0.1 or ::1, \
                   unless the program has bound one",
        reason: "the source of such a socket can no longer be set, but the kernel chooses the right source for that \
                 destination; and between the pod's IPv6 address and ::1 the kernel cannot acknowledge late segments",
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
        name: "Source of DNS connections from a port that was bound without an address, or by TCP over IPv6",
        istio: "the pod's address",
        sidestep: "127.0.0.1, ::1",
        reason: "as above, but a DNS proxy listens on the loopback only",
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
        name: "Source port that the proxy sees, if it is not the program's own",
        istio: "if two connections from one port would have the same tuple after redirection",
        sidestep: "never: connect(2) chooses a free port, and fails with EADDRNOTAVAIL if the program has bound a \
                   port that is not free",
        reason: "Sidestep translates no ports",
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
        name: "Captured connection from a loopback address to another host",
        istio: "connect(2) fails with EINVAL, unless route_localnet is set",
        sidestep: "captured",
        reason: "the kernel fails so for packets that would leave the pod; these packets do not",
        translate: |case, outcome| {
            let from_loopback = case.probe.source.address().is_some_and(|ip| ip.to_canonical().is_loopback());
            if *outcome == Outcome::Failed(libc::EINVAL) && from_loopback && case.probe.interface() != "lo" {
                case.take_captured(outcome);
            }
        },
    },
    Difference {
        name: "Captured socket that is bound to an interface (SO_BINDTODEVICE, or a link-local destination)",
        istio: "packets are lost, since 127.0.0.1 cannot be reached by that interface; for a destination without a \
                route the error is the interface's",
        sidestep: "captured, at the pod's address of that interface, except DNS, which fails at once. The error is \
                   the route's",
        reason: "that is better than a timeout",
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
