//! The outcome for a connection, and the rule that decides.

use std::fmt;

/// What the kernel's programs decide, by the same rules; `sidestep explain` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Where the connection goes.
    pub action: Action,
    /// The first rule that matched.
    pub rule: Rule,
}

/// What happens to a connection. The number is the port of the pod's loopback address to which it is redirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To the dialled address, without the proxy.
    Bypass,
    /// To the proxy's port for outbound connections.
    Outbound(u16),
    /// To the proxy's port for inbound connections.
    Inbound(u16),
    /// To the port of the pod's DNS proxy.
    Dns(u16),
}

/// The lines of the [table](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // Their texts say it.
pub enum Rule {
    OutputInterface,
    OutputExcludedPort,
    OutputPassthrough,
    OutputUserToItself,
    OutputOtherUser,
    OutputUser,
    OutputGroupToItself,
    OutputOtherGroup,
    OutputGroup,
    OutputOwnerGroup,
    OutputDns,
    OutputLoopback,
    OutputExcludedRange,
    OutputIncludedPort,
    OutputIncludedRange,
    OutputNone,
    InputVirtual,
    InputInterface,
    InputTunnel,
    InputPort,
    InputNone,
}

impl Rule {
    fn text(self) -> &'static str {
        match self {
            Rule::OutputInterface => "OUTPUT 1: excludeInterfaces",
            Rule::OutputExcludedPort => "OUTPUT 2: excludeOutboundPorts",
            Rule::OutputPassthrough => "OUTPUT 3: from 127.0.0.6 or ::6, which the proxy uses towards its own pod",
            Rule::OutputUserToItself => "OUTPUT 4a: the proxy's user calls its own pod",
            Rule::OutputOtherUser => "OUTPUT 4b: within the pod, not by the proxy's user",
            Rule::OutputUser => "OUTPUT 4c: the proxy's user",
            Rule::OutputGroupToItself => "OUTPUT 5a: the proxy's group calls its own pod",
            Rule::OutputOtherGroup => "OUTPUT 5b: within the pod, not by the proxy's group",
            Rule::OutputGroup => "OUTPUT 5c: the proxy's group",
            Rule::OutputOwnerGroup => "OUTPUT 6: ISTIO_OUTBOUND_OWNER_GROUPS and its exclusions",
            Rule::OutputDns => "OUTPUT 7: DNS",
            Rule::OutputLoopback => "OUTPUT 8: to 127.0.0.1 or ::1",
            Rule::OutputExcludedRange => "OUTPUT 9: excludeOutboundIPRanges",
            Rule::OutputIncludedPort => "OUTPUT 10: includeOutboundPorts",
            Rule::OutputIncludedRange => "OUTPUT 11: includeOutboundIPRanges",
            Rule::OutputNone => "OUTPUT: no rule",
            Rule::InputVirtual => "INPUT 1: kubevirtInterfaces",
            Rule::InputInterface => "INPUT 2: excludeInterfaces",
            Rule::InputTunnel => "INPUT 3: the tunnel's port",
            Rule::InputPort => "INPUT 4: includeInboundPorts and excludeInboundPorts",
            Rule::InputNone => "INPUT: no rule",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.text())
    }
}
