//! Converts Kubernetes objects. Parts of a Service that are not supported are reported in the result, never silently dropped.

use crate::address::Protocol;
use crate::field::{Result, address, addresses, invalid, name, network, parsed, port_number, shown};
use crate::object::{Bypass, Object, Port, Selection, Service, Skipped, Slice, SliceEndpoint, SlicePort};
use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// On a Service: `random`, `weighted` or `least-connections`.
const SELECTION: &str = "sidestep.dev/selection";
/// On an EndpointSlice: weights by address, such as `10.0.0.7=3,10.0.0.8=1`; the default is 1.
const WEIGHTS: &str = "sidestep.dev/weights";
/// On a Service whose connections need no proxy: `true`, `outbound` or `false`.
const BYPASS_PROXY: &str = "sidestep.dev/bypass-proxy";
/// Label of a slice: its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of a Service that another proxy implements; kube-proxy ignores such Services, too.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of a headless Service's objects: its endpoints are only answers of DNS.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Kubernetes' default.
const AFFINITY_SECONDS: i32 = 10_800;

/// Annotations, external addresses and load balancers' addresses that cannot be read are reported in [`Service::left`] and ignored;
/// another invalid field is an error. Nothing that an ExternalName Service says besides has an effect.
pub fn service(from: &core::Service) -> Result<Object> {
    // Headless and ExternalName Services exist only in DNS: they have no address to connect to.
    let is_alias = from.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName"));
    let (spec, status) = if is_alias { (None, None) } else { (from.spec.as_ref(), from.status.as_ref()) };
    let spec = spec.cloned().unwrap_or_default();
    let mut left = Vec::new();
    let name = name(&from.metadata)?;
    let others = not_ours(&from.metadata);
    if let Some(why) = others {
        left.push(Skipped { what: name.to_string(), why });
    }
    let ports = if others.is_none() { ports(&spec, &mut left)? } else { Vec::new() };
    let source_ranges = source_ranges(&spec)?;
    Ok(Object::Service(Service {
        cluster_ips: cluster_ips(&spec)?,
        external_ips: external_ips(&spec, &mut left),
        load_balancer_ips: load_balancer_ips(status, &source_ranges, &mut left),
        source_ranges,
        ports,
        affinity_seconds: affinity(&spec)?,
        internal_local: policy("spec.internalTrafficPolicy", spec.internal_traffic_policy.as_deref())?,
        external_local: policy("spec.externalTrafficPolicy", spec.external_traffic_policy.as_deref())?,
        health_check_port: if others.is_none() { health_check_port(&spec)? } else { None },
        selection: selection(&from.metadata, &mut left),
        bypass: bypass(&from.metadata, &mut left),
        created: from.metadata.creation_timestamp.as_ref().map(|t| t.0.to_string()).unwrap_or_default(),
        left,
        name,
    }))
}

/// The label for which kube-proxy ignores the Service or EndpointSlice, too.
fn not_ours(metadata: &ObjectMeta) -> Option<&'static str> {
    let has = |key| metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
    if has(PROXY_NAME) {
        Some("a label asks for another proxy")
    } else if has(HEADLESS) {
        Some("a label says that it is headless")
    } else {
        None
    }
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Empty for a headless Service.
fn cluster_ips(spec: &core::ServiceSpec) -> Result<Vec<IpAddr>> {
    let listed = spec.cluster_ips.clone().unwrap_or_default();
    let all = if listed.is_empty() { spec.cluster_ip.iter().cloned().collect() } else { listed };
    let real: Vec<String> = all.into_iter().filter(|ip| ip != "None" && !ip.is_empty()).collect();
    addresses("spec.clusterIPs", &real)
}

fn external_ips(spec: &core::ServiceSpec, left: &mut Vec<Skipped>) -> Vec<IpAddr> {
    let listed = spec.external_ips.iter().flatten().enumerate();
    listed.filter_map(|(i, text)| external(format!("spec.externalIPs[{i}]"), text, left)).collect()
}

/// None: it is left out. As an error it would keep everything else of the Service as it was.
fn external(path: String, text: &str, left: &mut Vec<Skipped>) -> Option<IpAddr> {
    let ip = parsed(text);
    if ip.is_none() {
        left.push(Skipped { what: format!("{path} {:?}", shown(text)), why: "it is no IP address" });
    }
    ip
}

fn load_balancer_ips(status: Option<&core::ServiceStatus>, ranges: &[IpNet], left: &mut Vec<Skipped>) -> Vec<IpAddr> {
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    let mut found = Vec::new();
    for (i, entry) in ingress.iter().enumerate() {
        let Some(text) = &entry.ip else { continue };
        let Some(ip) = external(format!("status.loadBalancer.ingress[{i}].ip"), text, left) else { continue };
        if entry.ip_mode.as_deref() == Some("Proxy") {
            left.push(Skipped { what: ip.to_string(), why: "ipMode Proxy: connections are for the load balancer" });
            continue;
        }
        if ranges.iter().any(|range| range.addr().is_ipv4() == ip.is_ipv4()) {
            left.push(Skipped {
                what: ip.to_string(),
                why: "loadBalancerSourceRanges: packets are translated, not sockets",
            });
        }
        found.push(ip);
    }
    found
}

/// The API server accepts ranges with spaces around them. If one of a family has everybody in it, the family is not restricted, as for
/// kube-proxy.
fn source_ranges(spec: &core::ServiceSpec) -> Result<Vec<IpNet>> {
    let listed = spec.load_balancer_source_ranges.iter().flatten().enumerate();
    let range = |(i, text): (usize, &String)| match network(text.trim()) {
        Some(range) => Ok(range),
        None => invalid(format!("spec.loadBalancerSourceRanges[{i}]"), text, "a network, such as 192.0.2.0/24"),
    };
    let mut ranges = listed.map(range).collect::<Result<Vec<_>>>()?;
    let open: Vec<bool> =
        ranges.iter().filter(|range| range.prefix_len() == 0).map(|range| range.addr().is_ipv4()).collect();
    ranges.retain(|range| !open.contains(&range.addr().is_ipv4()));
    Ok(ranges)
}

fn ports(spec: &core::ServiceSpec, left: &mut Vec<Skipped>) -> Result<Vec<Port>> {
    let mut found = Vec::new();
    for (i, port) in spec.ports.iter().flatten().enumerate() {
        let path = format!("spec.ports[{i}]");
        let number = port_number(format!("{path}.port"), port.port)?;
        let node_port = port.node_port.filter(|n| *n != 0);
        let node_port = node_port.map(|n| port_number(format!("{path}.nodePort"), n)).transpose()?;
        let name: Arc<str> = port.name.as_deref().unwrap_or("").into();
        match protocol(format!("{path}.protocol"), port.protocol.as_deref())? {
            Some(protocol) => found.push(Port { name, protocol, port: number, node_port }),
            None => left.push(Skipped { what: format!("port {number}"), why: "SCTP sockets are not balanced" }),
        }
    }
    Ok(found)
}

/// None: SCTP.
fn protocol(path: String, text: Option<&str>) -> Result<Option<Protocol>> {
    match text.unwrap_or("TCP") {
        "TCP" => Ok(Some(Protocol::Tcp)),
        "UDP" => Ok(Some(Protocol::Udp)),
        "SCTP" => Ok(None),
        other => invalid(path, other, "TCP, UDP or SCTP"),
    }
}

fn affinity(spec: &core::ServiceSpec) -> Result<Option<u32>> {
    match spec.session_affinity.as_deref().unwrap_or("None") {
        "None" => Ok(None),
        "ClientIP" => {
            let client = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
            let seconds = client.and_then(|client| client.timeout_seconds).unwrap_or(AFFINITY_SECONDS);
            match u32::try_from(seconds) {
                Ok(seconds @ 1..=86_400) => Ok(Some(seconds)),
                _ => invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, "1 to 86400 seconds"),
            }
        }
        other => invalid("spec.sessionAffinity", other, "None or ClientIP"),
    }
}

/// Whether the policy is Local.
fn policy(path: &str, text: Option<&str>) -> Result<bool> {
    match text.unwrap_or("Cluster") {
        "Cluster" => Ok(false),
        "Local" => Ok(true),
        other => invalid(path, other, "Cluster or Local"),
    }
}

/// As in kube-proxy, only of load balancers that send connections to nodes with endpoints.
fn health_check_port(spec: &core::ServiceSpec) -> Result<Option<u16>> {
    let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
    let is_asked = is_local && spec.type_.as_deref() == Some("LoadBalancer");
    let port = spec.health_check_node_port.filter(|port| is_asked && *port != 0);
    port.map(|port| port_number("spec.healthCheckNodePort".into(), port)).transpose()
}

fn selection(metadata: &ObjectMeta, left: &mut Vec<Skipped>) -> Selection {
    match annotation(metadata, SELECTION).unwrap_or("random") {
        "random" => Selection::Random,
        "weighted" => Selection::Weighted,
        "least-connections" => Selection::LeastConnections,
        other => {
            let why = "random, for it is none of random, weighted and least-connections";
            left.push(misread(SELECTION, other, why));
            Selection::Random
        }
    }
}

fn bypass(metadata: &ObjectMeta, left: &mut Vec<Skipped>) -> Bypass {
    match annotation(metadata, BYPASS_PROXY).unwrap_or("false") {
        "false" => Bypass::Nobody,
        "outbound" => Bypass::Clients,
        "true" => Bypass::Both,
        other => {
            left.push(misread(BYPASS_PROXY, other, "false, for it is none of true, outbound and false"));
            Bypass::Nobody
        }
    }
}

/// The API server does not check annotations: a wrong one is reported, and otherwise ignored.
fn misread(annotation: &str, text: &str, why: &'static str) -> Skipped {
    Skipped { what: format!("annotation {annotation} {:?}", shown(text)), why }
}

/// None: the slice has no Service, or one without an address, or names instead of addresses.
pub fn slice(from: &discovery::EndpointSlice) -> Result<Option<Object>> {
    let name = name(&from.metadata)?;
    let labels = from.metadata.labels.clone().unwrap_or_default();
    let Some(service) = labels.get(SERVICE_NAME).filter(|_| from.address_type != "FQDN") else { return Ok(None) };
    if not_ours(&from.metadata).is_some() {
        return Ok(None);
    }
    if !["IPv4", "IPv6"].contains(&from.address_type.as_str()) {
        return invalid("addressType", &from.address_type, "IPv4, IPv6 or FQDN");
    }
    let mut endpoints =
        from.endpoints.iter().flatten().enumerate().map(|(i, e)| endpoint(i, e)).collect::<Result<Vec<_>>>()?;
    if let Some(i) = endpoints.iter().position(|e| e.address.is_ipv4() != (from.address_type == "IPv4")) {
        let found = endpoints[i].address;
        return invalid(format!("endpoints[{i}].addresses[0]"), found, "an address of the slice's addressType");
    }
    let mut left = Vec::new();
    endpoints.retain(|endpoint| is_one_machine(endpoint.address, &mut left));
    // A large cluster has hundreds of thousands, and the vector has grown by doubling.
    endpoints.shrink_to_fit();
    let weights = weights(&from.metadata, &mut left);
    let (service, ports) = (service.as_str().into(), slice_ports(from, &mut left)?);
    Ok(Some(Object::Slice(Slice { name, service, ports, endpoints, weights, left })))
}

/// Ports without a number mean all ports, which no proxy can balance: they are left out. So are numbers that no port has: the API server
/// accepts any, and with a slice that cannot be read a tenant would keep all nodes from removing what earlier agents have left.
fn slice_ports(from: &discovery::EndpointSlice, left: &mut Vec<Skipped>) -> Result<Vec<SlicePort>> {
    let mut found = Vec::new();
    for (i, port) in from.ports.iter().flatten().enumerate() {
        let Some(number) = port.port else { continue };
        let Some(number) = u16::try_from(number).ok().filter(|number| *number != 0) else {
            left.push(Skipped { what: format!("endpoints' port {number}"), why: "ports are from 1 to 65535" });
            continue;
        };
        let name = port.name.as_deref().unwrap_or("").into();
        if let Some(protocol) = protocol(format!("ports[{i}].protocol"), port.protocol.as_deref())? {
            found.push(SlicePort { name, protocol, port: number });
        }
    }
    Ok(found)
}

fn endpoint(i: usize, from: &discovery::Endpoint) -> Result<SliceEndpoint> {
    let path = format!("endpoints[{i}].addresses");
    // All addresses of an endpoint are equivalent; the API says to use the first.
    let Some(text) = from.addresses.first() else { return invalid(path, (), "an address") };
    let conditions = from.conditions.clone().unwrap_or_default();
    let hints = from.hints.clone().unwrap_or_default();
    Ok(SliceEndpoint {
        address: endpoint_address(format!("{path}[0]"), text)?,
        ready: conditions.ready.unwrap_or(true),
        serving: conditions.serving.unwrap_or(true),
        terminating: conditions.terminating.unwrap_or(false),
        node: from.node_name.as_deref().map(Arc::from),
        zone_hints: hints.for_zones.iter().flatten().map(|zone| zone.name.as_str().into()).collect(),
        node_hints: hints.for_nodes.iter().flatten().map(|node| node.name.as_str().into()).collect(),
    })
}

/// Refuses what the API server refuses: as seen by a socket, a loopback or link-local address would be the client's own host,
/// or a neighbour of the node.
fn endpoint_address(path: String, text: &str) -> Result<IpAddr> {
    let found = address(path.clone(), text)?;
    let is_special = match found {
        IpAddr::V4(ip) => ip.is_link_local() || ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.segments()[0] & 0xff0f == 0xff02,
    };
    if is_special || found.is_loopback() || found.is_unspecified() {
        return invalid(path, text, "an address that is neither unspecified nor loopback nor link-local");
    }
    Ok(found)
}

/// The API server accepts multicast addresses, at which no backend can be reached.
fn is_one_machine(ip: IpAddr, left: &mut Vec<Skipped>) -> bool {
    let is_group = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    if is_group {
        left.push(Skipped { what: format!("endpoint {ip}"), why: "a multicast or broadcast address is no backend's" });
    }
    !is_group
}

/// The weights up to the first part that cannot be read, which is reported.
fn weights(metadata: &ObjectMeta, left: &mut Vec<Skipped>) -> BTreeMap<IpAddr, u32> {
    let pairs = annotation(metadata, WEIGHTS).into_iter().flat_map(|text| text.split(','));
    let (good, bad): (Vec<_>, Vec<_>) =
        pairs.map(|pair| weight(pair).ok_or(pair)).partition(std::result::Result::is_ok);
    if let Some(Err(pair)) = bad.first() {
        left.push(misread(WEIGHTS, pair, "weight 1, for it is no ADDRESS=WEIGHT with a weight from 0 to 65535"));
    }
    good.into_iter().flatten().collect()
}

fn weight(pair: &str) -> Option<(IpAddr, u32)> {
    let (address, weight) = pair.split_once('=')?;
    Some((parsed(address.trim())?, weight.trim().parse().ok().filter(|weight| *weight <= MOST_WEIGHT)?))
}

/// Keeps the sums of a table far from overflow.
const MOST_WEIGHT: u32 = 65_535;
