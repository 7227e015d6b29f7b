//! Documents of kind Policy.

use super::identity::IGNORED;
use super::rules::{Action, BySide, Labels, Namespaces, OnDeny, Peer, Pods, Policy, Ports, Rule};
use crate::address::Protocol;
use crate::field::{self, Invalid};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `kind` of such a document; `apiVersion` is that of [`Capture`](crate::capture::pod::API_VERSION).
pub(crate) const KIND: &str = "Policy";

type Result<T> = std::result::Result<T, Invalid>;

/// The document as written.
#[derive(Deserialize)]
pub(crate) struct Document {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    select: Select,
    #[serde(default)]
    default: Defaults,
    #[serde(default)]
    dry_run: bool,
    on_deny: Option<String>,
    #[serde(default)]
    require_proxy: bool,
    #[serde(default)]
    egress: Vec<EgressRule>,
    #[serde(default)]
    ingress: Vec<IngressRule>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Select {
    #[serde(default)]
    match_labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct Defaults {
    egress: Option<String>,
    ingress: Option<String>,
}

#[derive(Deserialize)]
struct EgressRule {
    action: String,
    to: Option<Vec<PeerSpec>>,
    ports: Option<Vec<PortSpec>>,
}

#[derive(Deserialize)]
struct IngressRule {
    action: String,
    from: Option<Vec<PeerSpec>>,
    ports: Option<Vec<PortSpec>>,
}

#[derive(Deserialize)]
struct PeerSpec {
    labels: Option<BTreeMap<String, String>>,
    namespace: Option<String>,
    cidr: Option<String>,
    except: Option<Vec<String>>,
    node: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortSpec {
    port: Option<i32>,
    end_port: Option<i32>,
    protocol: Option<String>,
}

/// A rule of either direction, and its path in the document.
struct RuleSpec {
    path: String,
    /// Name of the field that holds the peers.
    other: &'static str,
    action: String,
    peers: Option<Vec<PeerSpec>>,
    ports: Option<Vec<PortSpec>>,
}

/// Checks the document. The error is the first invalid field.
pub(crate) fn policy(from: Document) -> Result<Policy> {
    let (name, spec) = (field::name(&from.metadata)?, from.spec);
    let egress = spec.egress.into_iter().enumerate().map(|(i, rule)| RuleSpec {
        path: format!("spec.egress[{i}]"),
        other: "to",
        action: rule.action,
        peers: rule.to,
        ports: rule.ports,
    });
    let ingress = spec.ingress.into_iter().enumerate().map(|(i, rule)| RuleSpec {
        path: format!("spec.ingress[{i}]"),
        other: "from",
        action: rule.action,
        peers: rule.from,
        ports: rule.ports,
    });
    Ok(Policy {
        select: labels("spec.select.matchLabels", spec.select.match_labels)?.into(),
        defaults: BySide {
            egress: spec.default.egress.map(|text| action("spec.default.egress", &text)).transpose()?,
            ingress: spec.default.ingress.map(|text| action("spec.default.ingress", &text)).transpose()?,
        },
        dry_run: spec.dry_run,
        on_deny: on_deny(spec.on_deny.as_deref())?,
        requires_proxy: spec.require_proxy,
        rules: BySide {
            egress: egress.map(|one| rule(one, &name.namespace)).collect::<Result<_>>()?,
            ingress: ingress.map(|one| rule(one, &name.namespace)).collect::<Result<_>>()?,
        },
        name,
    })
}

fn wrong<T>(path: impl Into<String>, found: impl std::fmt::Debug, expected: &'static str) -> Result<T> {
    Err(Invalid { path: path.into(), found: format!("{found:?}"), expected })
}

fn action(path: &str, text: &str) -> Result<Action> {
    match text {
        "allow" => Ok(Action::Allow),
        "deny" => Ok(Action::Deny),
        other => wrong(path, other, "allow or deny"),
    }
}

fn on_deny(text: Option<&str>) -> Result<OnDeny> {
    match text.unwrap_or("refuse") {
        "refuse" => Ok(OnDeny::Refuse),
        "drop" => Ok(OnDeny::Drop),
        other => wrong("spec.onDeny", other, "refuse or drop"),
    }
}

/// Refuses labels that identities ignore: such a selector would never match.
fn labels(path: &str, from: BTreeMap<String, String>) -> Result<Labels> {
    match from.keys().find(|key| IGNORED.contains(&key.as_str())) {
        Some(key) => wrong(path, key, "a label that a workload's pods have in common"),
        None => Ok(from.into_iter().map(|(key, value)| (key.into(), value.into())).collect()),
    }
}

fn rule(from: RuleSpec, namespace: &str) -> Result<Rule> {
    let (peers, ports) = (format!("{}.{}", from.path, from.other), format!("{}.ports", from.path));
    Ok(Rule {
        action: action(&format!("{}.action", from.path), &from.action)?,
        peers: each(&peers, from.peers, |path, one| peer(path, one, namespace))?,
        ports: each(&ports, from.ports, |path, one| port(path, &one))?,
        named: Vec::new(),
    })
}

/// A missing list means all. An empty list could be taken for none, so it is refused.
fn each<F, T>(path: &str, from: Option<Vec<F>>, read: impl Fn(String, F) -> Result<T>) -> Result<Vec<T>> {
    match from {
        None => Ok(Vec::new()),
        Some(list) if list.is_empty() => wrong(path, (), "at least one; for all of them the field is left out"),
        Some(list) => list.into_iter().enumerate().map(|(i, one)| read(format!("{path}[{i}]"), one)).collect(),
    }
}

fn peer(path: String, from: PeerSpec, namespace: &str) -> Result<Peer> {
    const ONE_OF: &str = "one of: labels or namespace or both; cidr, and except; node: true";
    match from {
        PeerSpec { cidr: Some(text), except, labels: None, namespace: None, node: None } => {
            let range = cidr(format!("{path}.cidr"), &text)?;
            let holes = except.unwrap_or_default().into_iter().enumerate();
            let except =
                holes.map(|(i, text)| cidr(format!("{path}.except[{i}]"), &text)).collect::<Result<Vec<_>>>()?;
            match except.iter().find(|hole| !range.contains(*hole)) {
                Some(hole) => wrong(format!("{path}.except"), hole, "ranges inside of cidr"),
                None => Ok(Peer::Range { range, except }),
            }
        }
        PeerSpec { node: Some(true), cidr: None, except: None, labels: None, namespace: None } => Ok(Peer::Node),
        PeerSpec { labels: None, namespace: None, .. } => wrong(path, (), ONE_OF),
        PeerSpec { labels, namespace: wanted, cidr: None, except: None, node: None } => {
            let namespaces = match wanted.as_deref() {
                Some("*") => Namespaces::Any,
                Some("") => return wrong(format!("{path}.namespace"), "", "a namespace, or * for all of them"),
                other => Namespaces::Named(other.unwrap_or(namespace).into()),
            };
            let labels = self::labels(&format!("{path}.labels"), labels.unwrap_or_default())?;
            Ok(Peer::Pods(Pods { namespaces, labels: labels.into() }))
        }
        _ => wrong(path, "several kinds", ONE_OF),
    }
}

fn cidr(path: String, text: &str) -> Result<IpNet> {
    match text.parse::<IpNet>() {
        Ok(range) if range.addr().to_canonical() == range.addr() => Ok(range.trunc()),
        _ => wrong(path, text, "a range such as 10.0.0.0/8 or fd00::/8"),
    }
}

fn port(path: String, from: &PortSpec) -> Result<Ports> {
    let protocol = match from.protocol.as_deref().unwrap_or("TCP") {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        other => return wrong(format!("{path}.protocol"), other, "TCP or UDP"),
    };
    let number = |field: &str, number| field::port_number(format!("{path}.{field}"), number);
    match (from.port, from.end_port) {
        (None, None) => Ok(Ports::all(protocol)),
        (None, Some(end)) => wrong(format!("{path}.endPort"), end, "a port before it"),
        (Some(port), end) => {
            let (first, last) = (number("port", port)?, number("endPort", end.unwrap_or(port))?);
            if last < first {
                return wrong(format!("{path}.endPort"), last, "no port before `port`");
            }
            Ok(Ports { protocol, first, last })
        }
    }
}
