//! Which connections of a pod go through its proxy: what istio-iptables gets from its flags and annotations.

use ipnet::IpNet;

/// All rules of one pod. An empty list means none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rules {
    /// The proxy's port for outbound connections (15001).
    pub outbound_port: u16,
    /// The proxy's port for inbound connections (15006).
    pub inbound_port: u16,
    /// Clients dial this port of the proxy themselves, so connections to it are never captured (15008).
    pub tunnel_port: u16,
    /// None: DNS is treated like other traffic.
    pub dns: Option<Dns>,
    /// Users that own the proxy's sockets, in the order in which they are tested (1337).
    pub proxy_uids: Vec<u32>,
    /// Groups that own the proxy's sockets, in the order in which they are tested, after all users (1337).
    pub proxy_gids: Vec<u32>,
    /// Which groups' connections are captured: ISTIO_OUTBOUND_OWNER_GROUPS and its exclusions.
    pub owner_groups: OwnerGroups,
    /// Destinations that are captured: includeOutboundIPRanges.
    pub include_outbound_ranges: Ranges,
    /// Destinations that are not captured, whatever else includes them: excludeOutboundIPRanges.
    pub exclude_outbound_ranges: Vec<IpNet>,
    /// Ports that are captured whatever the address, unless the address is excluded.
    pub include_outbound_ports: Vec<u16>,
    /// Dialled ports that are never captured: excludeOutboundPorts.
    pub exclude_outbound_ports: Vec<u16>,
    /// Which ports of the pod are captured: includeInboundPorts, and excludeInboundPorts.
    pub inbound_ports: InboundPorts,
    /// Interfaces at which nothing is captured.
    pub exclude_interfaces: Vec<String>,
    /// Interfaces whose incoming traffic is a virtual machine's outbound traffic.
    pub virtual_interfaces: Vec<String>,
    /// Istio has no such setting: its redirection always refuses.
    pub without_proxy: WithoutProxy,
}

/// Capture of DNS.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dns {
    /// Where the pod's DNS proxy listens, on its loopback address (15053).
    pub port: u16,
    /// A query is captured only if it is for one of them.
    pub servers: DnsServers,
}

/// Queries to which name servers are captured.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DnsServers {
    /// Whatever is sent to port 53.
    All,
    /// The name servers of resolv.conf. Empty: nothing is captured.
    These(Vec<std::net::IpAddr>),
}

/// Groups whose connections may be captured, by the gid that owns the socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnerGroups {
    /// Empty: all groups.
    AllBut(Vec<u32>),
    /// Empty: none.
    Only(Vec<u32>),
}

/// Destinations by address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ranges {
    /// `*`: every address of both families.
    All,
    /// Empty: none. A loopback range also lets calls within the pod be captured (line OUTPUT 4b).
    These(Vec<IpNet>),
}

/// Ports of the pod at which connections from outside are captured.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InboundPorts {
    /// `*`, and the excluded ports.
    AllBut(Vec<u16>),
    /// Empty: none.
    Only(Vec<u16>),
}

/// What happens to an inbound connection while the proxy does not listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WithoutProxy {
    /// The connection is refused, as by a redirection to a port without a listener.
    Refuse,
    /// The connection reaches the program itself.
    Pass,
}
