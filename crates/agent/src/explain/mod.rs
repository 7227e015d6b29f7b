//! Explains what happens to a connection, rule by rule, as the BPF programs decide: capture, Services, policies.

mod around;
mod both_ends;
mod captured;
mod decided;
mod packets;

use crate::report;
use crate::view::View;
use both_ends::Caller as Calling;
use sidestep_agent_api::{Caller, Explanation, Protocol, Step, Verdict};
use sidestep_ebpf::error::Error;
use sidestep_mesh::address::{self, Address, Family};
use sidestep_mesh::plane::{Frontend, FrontendKey, Scope};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Why a connection cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: it names no cgroup of version 2", .0.display())]
    NoCgroup(PathBuf),
    #[error("{found}: {expected}")]
    Netns { found: String, expected: &'static str },
    #[error("{} has no interface {name}, but {others}", netns.display())]
    NoInterface { netns: PathBuf, name: String, others: String },
    #[error("{} has no interface but lo", .0.display())]
    OnlyLoopback(PathBuf),
    #[error(transparent)]
    Tables(#[from] Error),
}

pub type Result<T> = std::result::Result<T, ExplainError>;

/// Adds the file's path to an error.
fn with(path: &Path) -> impl FnOnce(io::Error) -> ExplainError {
    move |source| ExplainError::File { path: path.into(), source }
}

pub use captured::{inbound, ours};
pub use packets::{Packet, explain as packet};

/// An incoming connection to a pod.
pub struct Call<'a> {
    pub port: u16,
    /// The interface by which it arrives.
    pub interface: Option<&'a str>,
    pub source: Option<IpAddr>,
    pub protocol: Protocol,
}

pub fn explain(view: &View, caller: &Caller, protocol: Protocol, to: SocketAddr) -> Result<Explanation> {
    let mut steps = Steps::default();
    if !is_balanced(view, caller, &mut steps)? {
        return Ok(steps.end(Verdict::Untouched));
    }
    match caller {
        Caller::Process(pid) => {
            if let Some(verdict) = captured::outbound(view, *pid, protocol, to, &mut steps)? {
                return Ok(steps.end(verdict));
            }
        }
        Caller::Cgroup(_) if !view.pods.statuses.is_empty() => captured::unknown(&mut steps),
        Caller::Cgroup(_) => {}
    }
    let is_node = is_of_the_node(view, caller, &mut steps)?;
    let from = Calling::new(caller)?;
    let protocol = ours(protocol);
    let Some((key, frontend)) = find(view, protocol, to, is_node, &mut steps)? else {
        let verdict =
            both_ends::of_all(view, from.as_ref(), &[to], protocol, &mut steps)?.unwrap_or(Verdict::Untouched);
        return Ok(steps.end(verdict));
    };
    service(view, &key, &frontend, from.as_ref(), steps)
}

/// The rules that have been consulted.
#[derive(Default)]
pub struct Steps(Vec<Step>);

impl Steps {
    pub fn say(&mut self, rule: impl Display, outcome: impl Display) {
        self.0.push(Step { rule: rule.to_string(), outcome: outcome.to_string() });
    }

    /// Appends the steps of another part.
    pub fn add(&mut self, other: Steps) {
        self.0.extend(other.0);
    }

    pub fn end(self, verdict: Verdict) -> Explanation {
        Explanation { steps: self.0, verdict, service: None, backends: Vec::new() }
    }
}

// --- the caller -----------------------------------------------------------------------------------------------------

/// Whether the programs see the caller's sockets.
fn is_balanced(view: &View, caller: &Caller, steps: &mut Steps) -> Result<bool> {
    if !view.is_attached() {
        steps.say("programs are attached", not_attached(view));
        return Ok(false);
    }
    if !view.is_listed() {
        steps.say("source", "not read yet: all is as an earlier agent programmed it");
    }
    let (cgroup, rule) = match caller {
        Caller::Cgroup(path) => (resolved(path)?, format!("cgroup {}", path.display())),
        Caller::Process(pid) => (cgroup_of(*pid, &view.settings.cgroup)?, format!("cgroup of process {pid}")),
    };
    let (attached, is_in) = (&view.settings.cgroup, cgroup.starts_with(resolved(&view.settings.cgroup)?));
    let relation = if is_in { "is in" } else { "is not in" };
    steps.say(rule, format!("{} {relation} {}, to which programs are attached", cgroup.display(), attached.display()));
    Ok(is_in)
}

fn not_attached(view: &View) -> String {
    if view.is_listed() {
        format!("no: not, or not all of them, to {}; a new agent attaches them", view.settings.cgroup.display())
    } else {
        "not yet: the source has not told everything".into()
    }
}

fn resolved(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).map_err(with(path))
}

/// The cgroup v2 of a process. The mount is found from `inside`, a directory in it.
fn cgroup_of(pid: u32, inside: &Path) -> Result<PathBuf> {
    let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
    let text = fs::read_to_string(&path).map_err(with(&path))?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.ok_or_else(|| ExplainError::NoCgroup(path.clone()))?;
    let inside = resolved(inside)?;
    let is_inside = |path: &&Path| path.join("cgroup.procs").exists();
    // The hierarchy's root has cgroup.procs; the directory that it is mounted on has not.
    let mount = inside.ancestors().take_while(is_inside).last().unwrap_or(&inside);
    Ok(mount.join(own))
}

/// Whether the caller is in this node's own network namespace: only there NodePorts answer at the loopback.
fn is_of_the_node(view: &View, caller: &Caller, steps: &mut Steps) -> Result<bool> {
    let Caller::Process(pid) = caller else {
        steps.say("network namespace", "not known of a cgroup: taken for a pod's");
        return Ok(false);
    };
    let is_node = captured::cookie_of(*pid)? == view.netns;
    steps.say("network namespace", if is_node { "the node's own" } else { "a pod's" });
    Ok(is_node)
}

// --- the destination ------------------------------------------------------------------------------------------------

fn find(
    view: &View,
    protocol: address::Protocol,
    to: SocketAddr,
    is_node: bool,
    steps: &mut Steps,
) -> Result<Option<(FrontendKey, Frontend)>> {
    let address = Address::from(to.ip().to_canonical());
    let exact = FrontendKey { address, port: to.port(), protocol, scope: Scope::Address };
    if let Some(found) = look_up(view, &exact)? {
        steps.say(format!("frontend {exact}"), owner(view, &exact));
        return Ok(Some((exact, found)));
    }
    steps.say(format!("frontend {exact}"), other_ports(view, &exact));
    let any = FrontendKey { address: address.family().unspecified(), scope: Scope::Node, ..exact };
    let Some(found) = look_up(view, &any)? else {
        steps.say(any, "no Service has this NodePort");
        return Ok(None);
    };
    steps.say(any, owner(view, &any));
    let is_here = is_node_address(view, address, is_node, steps)?;
    Ok(is_here.then_some((any, found)))
}

fn look_up(view: &View, key: &FrontendKey) -> Result<Option<Frontend>> {
    Ok(view.maps.frontend(key)?)
}

fn owner(view: &View, key: &FrontendKey) -> String {
    view.reconciler.owner(key).map_or_else(|| "programmed by an earlier agent".into(), |owner| owner.to_string())
}

/// A common mistake is a Service's address with a port that the Service does not have.
fn other_ports(view: &View, key: &FrontendKey) -> String {
    let ports = view.reconciler.ports();
    let keys = ports.iter().flat_map(|port| port.frontends().map(move |(key, _)| (key, port)));
    let same: BTreeSet<String> = keys
        .filter(|(other, _)| other.address == key.address && other.scope == Scope::Address)
        .map(|(other, port)| format!("{} {} is {}", other.protocol, other.port, port.key))
        .collect();
    match same.len() {
        0 => "no Service has this address".into(),
        _ => format!("no Service; of this address {}", same.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

fn is_node_address(view: &View, address: Address, is_node: bool, steps: &mut Steps) -> Result<bool> {
    let rule = format!("{address} is this node");
    let is_loopback = address.ip().is_loopback() && address.family() == Family::V4;
    let (is, why) = if is_loopback {
        (is_node, if is_node { "yes: its loopback" } else { "no: a pod's loopback is its own" })
    } else {
        let known = view.maps.node_addresses()?;
        let is = known.contains(&address);
        (is, if is { "yes" } else { "no: none of its addresses" })
    };
    steps.say(rule, why);
    Ok(is)
}

// --- the outcome ----------------------------------------------------------------------------------------------------

fn service(
    view: &View,
    key: &FrontendKey,
    frontend: &Frontend,
    from: Option<&Calling>,
    mut steps: Steps,
) -> Result<Explanation> {
    let numbers = view.maps.backends_of(frontend);
    let endpoints: BTreeSet<_> = numbers.into_iter().map(|number| view.maps.endpoint(number)).collect();
    if frontend.count == 0 {
        steps.say(
            "backends",
            "none that serves here: ECONNREFUSED (`sidestep service show` names the endpoints and why not)",
        );
    } else {
        steps.say("backends", format!("{}, {}", endpoints.len(), chosen(frontend)));
    }
    let targets: Vec<SocketAddr> = endpoints.iter().map(|endpoint| report::socket_address(*endpoint)).collect();
    let verdict = match frontend.count {
        0 => Verdict::Refused,
        _ => both_ends::of_all(view, from, &targets, key.protocol, &mut steps)?.unwrap_or(Verdict::Translated),
    };
    Ok(Explanation {
        steps: steps.0,
        verdict,
        service: Some(owner(view, key)),
        backends: endpoints.into_iter().map(|endpoint| report::backend(view, endpoint, 1)).collect(),
    })
}

fn chosen(frontend: &Frontend) -> String {
    let how = if frontend.least_connections {
        "of two random ones that with fewer connections"
    } else {
        "a random one by weight"
    };
    match frontend.affinity_seconds {
        0 => how.into(),
        seconds => format!("the one that this client used last if less than {seconds} s ago, else {how}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_error::chain;

    #[test]
    fn a_process_that_is_gone_is_named_by_its_file() {
        let error = cgroup_of(u32::MAX, Path::new("/")).unwrap_err();
        let expected = "/proc/4294967295/cgroup: No such file or directory (os error 2)";
        assert_eq!(chain(&error).to_string(), expected);
    }
}
