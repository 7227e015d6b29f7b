//! Istio's defaults.

use super::rules::{InboundPorts, OwnerGroups, Ranges, Rules, WithoutProxy};

/// Where Envoy accepts what its pod sends.
pub const OUTBOUND_PORT: u16 = 15001;
/// Where Envoy accepts what its pod receives.
pub const INBOUND_PORT: u16 = 15006;
/// Where Envoy accepts HBONE, the tunnel protocol of Istio's ambient mode.
pub const TUNNEL_PORT: u16 = 15008;
/// Where Istio's agent in the pod answers captured DNS queries.
pub const DNS_PORT: u16 = 15053;
/// User and group id of the proxy.
pub const PROXY: u32 = 1337;
/// Ports of the proxy itself, which the injector excludes in addition to all others: Envoy's metrics, health, and merged
/// metrics.
pub const OWN_PORTS: [u16; 3] = [15090, 15021, 15020];

/// The rules of a pod without annotations.
pub fn rules() -> Rules {
    Rules {
        outbound_port: OUTBOUND_PORT,
        inbound_port: INBOUND_PORT,
        tunnel_port: TUNNEL_PORT,
        dns: None,
        proxy_uids: vec![PROXY],
        proxy_gids: vec![PROXY],
        owner_groups: OwnerGroups::AllBut(Vec::new()),
        include_outbound_ranges: Ranges::All,
        exclude_outbound_ranges: Vec::new(),
        include_outbound_ports: Vec::new(),
        exclude_outbound_ports: Vec::new(),
        inbound_ports: InboundPorts::AllBut(OWN_PORTS.to_vec()),
        exclude_interfaces: Vec::new(),
        virtual_interfaces: Vec::new(),
        without_proxy: WithoutProxy::Refuse,
    }
}
