//! A captured pod, as a document describes it.

use super::rules::{Dns, DnsServers, Rules, WithoutProxy};
use super::text::{Result, Text};
use super::{annotations, defaults};
use crate::field;
use crate::name::Name;
use crate::policy::rules::Labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// `apiVersion` of all kinds of documents that Sidestep defines.
pub(crate) const API_VERSION: &str = "sidestep.dev/v1";
/// `kind` of a document that describes a captured pod.
pub(crate) const KIND: &str = "Capture";

/// A document of kind Capture, checked and with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// From `metadata`. If a Pod object has it too, and the UID below if there is one, the document is about that pod.
    pub name: Name,
    /// From `metadata.uid`: the UID by which the container runtime knows the pod. A Pod object with another one is about an earlier
    /// or later pod of that name. None: the document does not say which pod of the name it is about, such as an operator's.
    pub uid: Option<Arc<str>>,
    /// From `spec.netns`. Not opened yet: it need not exist.
    pub netns: Netns,
    /// From `spec.cgroup`: below the agent's cgroup, or absolute. Only checked to be in that cgroup. None: anywhere.
    pub cgroup: Option<PathBuf>,
    /// The addresses that the namespace must have. Empty: any.
    pub addresses: Vec<IpAddr>,
    /// From `metadata.labels`, for policies.
    pub labels: Labels,
    /// The pod's connections never bypass its proxy.
    pub requires_proxy: bool,
    /// From the annotations, `spec.proxy` and `spec.dns`.
    pub rules: Rules,
}

/// How a network namespace is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Netns {
    /// By a name in `/run/netns`.
    Name(String),
    /// By an absolute path, such as a bind mount of a namespace.
    Path(PathBuf),
    /// By a process.
    Pid(u32),
}

impl Netns {
    /// Reads the form that `spec.netns` has.
    pub fn read(text: &str) -> Result<Netns> {
        netns(text)
    }

    /// The namespace's file.
    pub fn path(&self) -> PathBuf {
        match self {
            Netns::Name(name) => Path::new("/run/netns").join(name),
            Netns::Path(path) => path.clone(),
            Netns::Pid(pid) => Path::new("/proc").join(pid.to_string()).join("ns/net"),
        }
    }
}

/// In the form in which it was written.
impl fmt::Display for Netns {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Netns::Name(name) => f.write_str(name),
            Netns::Path(path) => write!(f, "{}", path.display()),
            Netns::Pid(pid) => write!(f, "{pid}"),
        }
    }
}

/// A document of kind Capture, as written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    netns: Word,
    cgroup: Option<String>,
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    proxy: ProxySpec,
    dns: Option<DnsSpec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProxySpec {
    uid: Option<Word>,
    gid: Option<Word>,
    outbound_port: Option<i32>,
    inbound_port: Option<i32>,
    without_proxy: Option<String>,
}

#[derive(Deserialize)]
struct DnsSpec {
    port: Option<i32>,
    servers: Option<Value>,
}

/// A text. YAML reads an unquoted number as a number; it is accepted as text.
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Word, D::Error> {
        from.deserialize_any(AnyWord).map(Word)
    }
}

struct AnyWord;

impl Visitor<'_> for AnyWord {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string or a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> std::result::Result<String, E> {
        Ok(text.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> std::result::Result<String, E> {
        Ok(number.to_string())
    }
}

/// Checks a document and fills in Istio's defaults. The error names the first invalid field or annotation.
pub(crate) fn capture(from: Document) -> Result<Capture> {
    let name = field::name(&from.metadata)?;
    let (labels, requires_proxy) = (field::labels(&from.metadata), field::requires_proxy(&from.metadata)?);
    let uid = from.metadata.uid.as_deref().map(Arc::from);
    let annotations: BTreeMap<_, _> = from.metadata.annotations.unwrap_or_default();
    let proxy = &from.spec.proxy;
    let user = proxy.uid.as_ref().map_or_else(|| defaults::PROXY.to_string(), |word| word.0.clone());
    let group = proxy.gid.as_ref().map_or(user.as_str(), |word| &word.0);
    Ok(Capture {
        name,
        uid,
        netns: netns(&from.spec.netns.0)?,
        cgroup: from.spec.cgroup.as_deref().map(cgroup).transpose()?,
        addresses: field::addresses("spec.addresses", &from.spec.addresses)?,
        labels,
        requires_proxy,
        rules: Rules {
            outbound_port: port("spec.proxy.outboundPort", proxy.outbound_port, defaults::OUTBOUND_PORT)?,
            inbound_port: port("spec.proxy.inboundPort", proxy.inbound_port, defaults::INBOUND_PORT)?,
            proxy_uids: owners("spec.proxy.uid", &user)?,
            proxy_gids: owners("spec.proxy.gid", group)?,
            without_proxy: without_proxy(proxy.without_proxy.as_deref())?,
            dns: from.spec.dns.map(dns).transpose()?,
            ..annotations::rules(&annotations)?
        },
    })
}

fn netns(text: &str) -> Result<Netns> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    let path = PathBuf::from(text);
    match text.parse() {
        Ok(pid) if is_number && pid != 0 => Ok(Netns::Pid(pid)),
        _ if path.is_absolute() => Ok(Netns::Path(path)),
        _ if is_number || text.contains('/') || [".", ".."].contains(&text) => {
            spec("spec.netns", text).wrong(text, "a name in /run/netns, an absolute path, or a process's number")
        }
        _ => Ok(Netns::Name(text.to_string())),
    }
}

/// Refuses paths outside the cgroup root: an agent that serves a part of the node's pods must not touch others.
fn cgroup(text: &str) -> Result<PathBuf> {
    let path = PathBuf::from(text);
    let is_straight = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if is_straight && path.file_name().is_some() {
        return Ok(path);
    }
    spec("spec.cgroup", text).wrong(text, "a path without `..`, absolute or below the agent's cgroup")
}

fn port(path: &str, given: Option<i32>, default: u16) -> Result<u16> {
    given.map_or(Ok(default), |number| field::port_number(path.to_string(), number))
}

/// Only numbers: names would have to be looked up in the pod, whose users are not the agent's.
fn owners(path: &str, text: &str) -> Result<Vec<u32>> {
    spec(path, text).owners(&|_| None, "numbers between commas")
}

fn without_proxy(given: Option<&str>) -> Result<WithoutProxy> {
    match given.unwrap_or("refuse") {
        "refuse" => Ok(WithoutProxy::Refuse),
        "pass" => Ok(WithoutProxy::Pass),
        other => spec("spec.proxy.withoutProxy", other).wrong(other, "refuse or pass"),
    }
}

fn dns(from: DnsSpec) -> Result<Dns> {
    let port = port("spec.dns.port", from.port, defaults::DNS_PORT)?;
    Ok(Dns { port, servers: dns_servers(from.servers.unwrap_or_else(|| "all".into()))? })
}

fn dns_servers(from: Value) -> Result<DnsServers> {
    const EXPECTED: &str = "all, or a list of IP addresses";
    if from == "all" {
        return Ok(DnsServers::All);
    }
    let path = "spec.dns.servers";
    match serde_json::from_value::<Vec<String>>(from.clone()) {
        Ok(servers) => field::addresses(path, &servers).map(DnsServers::These),
        Err(_) => Err(field::Invalid { path: path.to_string(), found: from.to_string(), expected: EXPECTED }),
    }
}

fn spec<'a>(name: &'a str, text: &'a str) -> Text<'a> {
    Text { name, text }
}
