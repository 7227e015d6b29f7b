//! Explains step by step what the rules of a captured pod do with a connection.

use super::around;
use super::decided;
use super::{Call, ExplainError, Result, Steps, with};
use crate::view::View;
use ipnet::IpNet;
use sidestep_agent_api::{Explanation, Protocol, Verdict};
use sidestep_ebpf::capture::pod_network;
use sidestep_ebpf::netns;
use sidestep_mesh::address;
use sidestep_mesh::capture::inbound::Inbound;
use sidestep_mesh::capture::outbound::{NOBODY, Outbound};
use sidestep_mesh::capture::pod::{Capture, Netns};
use sidestep_mesh::capture::probe::Probe;
use sidestep_mesh::capture::rules::WithoutProxy;
use sidestep_mesh::capture::tables::{PodNetwork, Route};
use sidestep_mesh::capture::verdict::Action;
use sidestep_mesh::field::Invalid;
use sidestep_mesh::object::Name;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Explains an outgoing connection of this process. None: its pod's rules leave it alone, or the pod is not captured.
pub fn outbound(
    view: &View,
    pid: u32,
    protocol: Protocol,
    to: SocketAddr,
    steps: &mut Steps,
) -> Result<Option<Verdict>> {
    let path = format!("/proc/{pid}/ns/net");
    let (cookie, network) = pod_network::read_named(Path::new(&path))?;
    let Some(capture) = whose(view, cookie, steps)? else { return Ok(None) };
    let (uid, gid) = owner(pid)?;
    steps.say("owner of its sockets", format!("user {uid}, group {gid}{}", is_proxy(capture, uid, gid)));
    let ip = meant(to.ip().to_canonical());
    let (interface, route) = leaves_by(&network, ip);
    steps.say(format!("route to {ip}"), route);
    let protocol = ours(protocol);
    let probe = Outbound { protocol, destination: to, source: None, interface: interface.unwrap_or(""), uid, gid };
    let decided = Probe::Outbound(probe).verdict(&capture.rules);
    steps.say(decided.rule, action(decided.action));
    if decided.action == Action::Bypass {
        return Ok(None);
    }
    let is_sent = matches!(decided.action, Action::Outbound(_)) && interface.is_some();
    if is_sent && around::outbound(view, &capture.name, SocketAddr::new(ip, to.port()), protocol, steps) {
        return Ok(None);
    }
    if interface.is_none() {
        steps.say("route", "none: the error is the same as without capture");
        return Ok(Some(Verdict::Refused));
    }
    Ok(Some(match decided.action {
        Action::Dns(_) => Verdict::CapturedDns,
        Action::Inbound(_) => Verdict::CapturedInbound,
        _ => Verdict::CapturedOutbound,
    }))
}

/// Explains an incoming connection to the pod.
pub fn inbound(view: &View, netns: &str, call: &Call) -> Result<Explanation> {
    let mut steps = Steps::default();
    let path = Netns::read(netns).map_err(no_netns)?.path();
    let (cookie, network) = pod_network::read_named(&path)?;
    if !is_let_in(view, cookie, &network, call, &mut steps) {
        return Ok(steps.end(Verdict::DeniedIn));
    }
    let Some(capture) = whose(view, cookie, &mut steps)? else { return Ok(steps.end(Verdict::Untouched)) };
    let port = call.port;
    let interface = match call.interface {
        Some(name) if network.interfaces.contains_key(name) => name,
        Some(name) => {
            return Err(ExplainError::NoInterface { netns: path, name: name.into(), others: names(&network) });
        }
        None => outside(&network).ok_or(ExplainError::OnlyLoopback(path))?,
    };
    let own = network.addresses.iter().find(|ip| !ip.is_loopback());
    let destination = SocketAddr::new(own.copied().unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
    steps.say("comes in", format!("by {interface}, to {destination}"));
    if interface == "lo" {
        steps.say("lo", "what stays within the pod was decided when it was sent: ask for the process that dials");
        return Ok(steps.end(Verdict::Untouched));
    }
    let decided = Probe::Inbound(Inbound { interface, destination }).verdict(&capture.rules);
    steps.say(decided.rule, action(decided.action));
    let (role, verdict) = match decided.action {
        Action::Inbound(_) => (1, Verdict::CapturedInbound),
        Action::Outbound(_) => (0, Verdict::CapturedOutbound),
        Action::Bypass | Action::Dns(_) => return Ok(steps.end(Verdict::Untouched)),
    };
    if verdict == Verdict::CapturedInbound && around::inbound(view, &capture.name, destination, call.source, &mut steps)
    {
        return Ok(steps.end(Verdict::Untouched));
    }
    let listening = view.pods.tables.all_listening().get(&cookie).map_or(0, |roles| roles[role]);
    let refuses = capture.rules.without_proxy == WithoutProxy::Refuse;
    Ok(match (listening, refuses) {
        (0, true) => {
            steps.say("the proxy", "does not listen there: ECONNREFUSED (spec.proxy.withoutProxy: refuse)");
            steps.end(Verdict::Refused)
        }
        (0, false) => {
            steps.say("the proxy", "does not listen there: the program itself gets it (spec.proxy.withoutProxy: pass)");
            steps.end(Verdict::Untouched)
        }
        (count, _) => {
            steps.say("the proxy", format!("listens there with {count} sockets"));
            steps.end(verdict)
        }
    })
}

fn no_netns(wrong: Invalid) -> ExplainError {
    ExplainError::Netns { found: wrong.found, expected: wrong.expected }
}

/// Whether the pod's policies allow the connection. Without a source address they are not evaluated.
fn is_let_in(view: &View, cookie: u64, network: &PodNetwork, call: &Call, steps: &mut Steps) -> bool {
    let Some(pod) = decided::enforced_at(view, cookie, steps) else { return true };
    match call.source {
        None => {
            steps.say("policies", "depend on who calls: name an address by --source");
            true
        }
        Some(from) if from.is_loopback() || network.addresses.contains(&from.to_canonical()) => {
            steps.say("policies", "are not asked: it comes from the pod itself");
            true
        }
        Some(from) => decided::into(view, &pod, from, ours(call.protocol), call.port, steps).is_none(),
    }
}

pub fn ours(protocol: Protocol) -> address::Protocol {
    match protocol {
        Protocol::Tcp => address::Protocol::Tcp,
        Protocol::Udp => address::Protocol::Udp,
    }
}

/// The document by whose rules this namespace is captured. None: no known one.
fn whose<'a>(view: &'a View, cookie: u64, steps: &mut Steps) -> Result<Option<&'a Capture>> {
    const RULE: &str = "capture";
    if let Some(capture) = view.pods.of(cookie) {
        steps.say(RULE, format!("by the rules of Capture {}", capture.name));
        return Ok(Some(capture));
    }
    if view.pods.tables.is_captured(cookie)? {
        steps.say(
            RULE,
            "the pod is captured, by rules of an earlier agent or of a file that has gone: they are not known",
        );
    } else if cookie != view.netns {
        steps.say(RULE, "no: no file of kind Capture is for this pod");
    }
    Ok(None)
}

/// The user and group of files that the process creates (the file system ids).
fn owner(pid: u32) -> Result<(u32, u32)> {
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let text = fs::read_to_string(&path).map_err(with(&path))?;
    let last =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().last()?.parse().ok());
    Ok((last("Uid:").unwrap_or(NOBODY), last("Gid:").unwrap_or(NOBODY)))
}

fn is_proxy(capture: &Capture, uid: u32, gid: u32) -> &'static str {
    let is = capture.rules.proxy_uids.contains(&uid) || capture.rules.proxy_gids.contains(&gid);
    if is { ": the proxy's" } else { "" }
}

/// An unspecified address means the loopback.
fn meant(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

/// The outgoing interface, if there is a route, and the same in words.
fn leaves_by(network: &PodNetwork, ip: IpAddr) -> (Option<&str>, String) {
    let covers = |net: &IpNet| net.contains(&ip);
    let best = network.routes.iter().filter(|(net, _)| covers(net)).max_by_key(|(net, _)| net.prefix_len());
    let name =
        |index: u32| network.interfaces.iter().find(|(_, number)| **number == index).map(|(name, _)| name.as_str());
    match best {
        Some((net, Route::Local { .. })) => (Some("lo"), format!("lo: {net} is the pod's own")),
        Some((net, Route::By { interface, source })) => {
            let name = name(*interface).unwrap_or("");
            (Some(name), format!("{name}: {net}, from {source}"))
        }
        Some((net, Route::Nowhere { error })) => {
            (None, format!("nowhere: {net}, {}", std::io::Error::from_raw_os_error((*error).into())))
        }
        None => (None, "none".into()),
    }
}

fn outside(network: &PodNetwork) -> Option<&str> {
    let default = network.routes.iter().filter(|(net, _)| net.prefix_len() == 0).find_map(|(_, route)| match route {
        Route::By { interface, .. } => Some(*interface),
        _ => None,
    });
    let mut others = network.interfaces.iter().filter(|(name, _)| *name != "lo");
    let by_default = network.interfaces.iter().find(|(name, number)| *name != "lo" && Some(**number) == default);
    // eth0 before interfaces without addresses: among those the kernel creates tunnels everywhere.
    let named = network.interfaces.get_key_value("eth0");
    by_default.or(named).or_else(|| others.next()).map(|(name, _)| name.as_str())
}

fn names(network: &PodNetwork) -> String {
    network.interfaces.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn action(action: Action) -> String {
    match action {
        Action::Bypass => "is not captured".into(),
        Action::Outbound(port) => format!("to the proxy's port {port}, for what the pod sends"),
        Action::Inbound(port) => format!("to the proxy's port {port}, for what the pod receives"),
        Action::Dns(port) => format!("to the proxy's port {port}, for DNS"),
    }
}

/// Says that a cgroup is not enough to tell.
pub fn unknown(steps: &mut Steps) {
    steps.say("capture", "not known of a cgroup: ask for a process if the pod is captured");
}

/// The cookie of the process's network namespace.
pub fn cookie_of(pid: u32) -> Result<u64> {
    let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
    netns::cookie_of(&path).map_err(with(&path))
}

/// Whether the connections of this pod go through its proxy.
pub fn is_captured(view: &View, pod: &Name) -> bool {
    view.pods.statuses.get(pod).is_some_and(|status| status.applied.is_some())
}
