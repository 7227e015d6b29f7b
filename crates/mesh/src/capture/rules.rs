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
    pub dns: Option<Dns>,
    /// Owners of the proxy's sockets, in the order in which they are tested.
    pub proxy_uids: Vec<u32>,
    pub proxy_gids: Vec<u32>,
    pub owner_groups: OwnerGroups,
    pub include_outbound_ranges: Ranges,
    pub exclude_outbound_ranges: Vec<IpNet>,
    /// Ports that are captured whatever the address, unless the address is excluded.
    pub include_outbound_ports: Vec<u16>,
    pub exclude_outbound_ports: Vec<u16>,
    pub inbound_ports: InboundPorts,
    /// Interfaces at which nothing is captured.
    pub exclude_interfaces: Vec<String>,
    /// Interfaces whose incoming traffic is a virtual machine's outbound traffic.
    pub virtual_interfaces: Vec<String>,
    pub without_proxy: WithoutProxy,
}

/// Capture of DNS.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dns {
    pub port: u16,
    pub servers: DnsServers,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DnsServers {
    All,
    /// The name servers of resolv.conf. Empty: nothing is captured.
    These(Vec<std::net::IpAddr>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnerGroups {
    AllBut(Vec<u32>),
    Only(Vec<u32>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ranges {
    All,
    These(Vec<IpNet>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InboundPorts {
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
