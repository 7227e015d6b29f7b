//! Explains what policies do with a connection: which rules match, and the outcome.

use super::{Result, Steps};
use crate::view::View;
use crate::words;
use sidestep_mesh::address::{Address, Protocol};
use sidestep_mesh::pod::Pod;
use sidestep_mesh::policy::evaluate::{Connection, Fit, Outcome, Who, evaluate, fitting, is_shared};
use sidestep_mesh::policy::identity::{Identity, NODE};
use sidestep_mesh::policy::plan::policies_of;
use sidestep_mesh::policy::rules::{Action, Direction, OnDeny, Policy};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// How the policies of the pod in this namespace deny the call; None: allowed. Do not ask for the pod's own addresses.
pub fn out(view: &View, netns: u64, to: SocketAddr, protocol: Protocol, steps: &mut Steps) -> Result<Option<OnDeny>> {
    let Some(pod) = enforced_at(view, netns, steps) else { return Ok(None) };
    Ok(decide(view, &pod, Direction::Egress, to.ip().to_canonical(), protocol, to.port(), steps))
}

/// How the pod's policies deny a call from this address; None: allowed.
pub fn into(view: &View, pod: &Pod, from: IpAddr, protocol: Protocol, port: u16, steps: &mut Steps) -> Option<OnDeny> {
    let status = view.pods.statuses.get(&pod.name);
    if !status.is_some_and(|status| status.enforced) {
        return None;
    }
    decide(view, pod, Direction::Ingress, from.to_canonical(), protocol, port, steps)
}

/// The pod whose policies are in force in this namespace.
pub fn enforced_at(view: &View, netns: u64, steps: &mut Steps) -> Option<Arc<Pod>> {
    let Some(name) = view.pods.pod_of(netns) else {
        if netns != view.netns {
            steps.say("policies", "none: no file of kind Capture is for this pod, so it has no policy enforced");
        }
        return None;
    };
    let pod = view.state.pods().remove(name)?;
    let status = view.pods.statuses.get(name);
    if status.is_some_and(|status| status.enforced) {
        return Some(pod);
    }
    let why = status.map(|status| status.troubles.join("; ")).filter(|why| !why.is_empty());
    match (policies_of(&view.state, &pod).next(), why) {
        (None, _) => steps.say("policies", format!("none selects {name}")),
        (Some(_), Some(why)) => steps.say("policies", format!("not in force for {name}: {why}")),
        (Some(_), None) => steps.say("policies", format!("none that selects {name} forbids or allows anything")),
    }
    None
}

/// The known pod that has this address.
pub fn pod_at(view: &View, address: IpAddr) -> Option<Arc<Pod>> {
    let address = address.to_canonical();
    view.state.pods().into_values().find(|pod| pod.addresses.contains(&address))
}

fn decide(
    view: &View,
    pod: &Pod,
    direction: Direction,
    peer: IpAddr,
    protocol: Protocol,
    port: u16,
    steps: &mut Steps,
) -> Option<OnDeny> {
    let policies: Vec<&Policy> = policies_of(&view.state, pod).collect();
    let identity = identity_of(view, peer);
    let who = match &identity {
        Some((NODE, _)) => Who::Node,
        Some((_, Some(identity))) => Who::Pod(identity),
        _ => Who::Unknown,
    };
    let (number, known) = identity.as_ref().map_or((0, None), |(number, known)| (*number, known.as_ref()));
    let peer_words = words::numbered(number, known);
    steps.say(format!("{direction} of {}: {peer}", pod.name), peer_words);
    let connection = Connection { direction, peer, who, protocol: Some(protocol), port, own_ports: &pod.ports };
    let in_force: Vec<&Policy> = policies.iter().copied().filter(|policy| !policy.dry_run).collect();
    for fit in fitting(&in_force, &connection) {
        steps.say(
            named(&policies, &fit, direction),
            if fit.action == Action::Allow { "allows it" } else { "denies it" },
        );
    }
    let evaluation = evaluate(&policies, &connection);
    if evaluation.would_be_denied {
        let tried = fitting(&policies, &connection).into_iter().filter(|fit| fit.dry_run);
        tried.filter(|fit| fit.action == Action::Deny).for_each(|fit| {
            steps.say(named(&policies, &fit, direction), "would deny it: a dry run, so it is only counted");
        });
    }
    if who == Who::Unknown && is_shared(peer) && in_force.iter().any(|policy| policy.denies_by_name(direction)) {
        let why =
            "many hosts may have it, and a policy denies some by who they are: only a rule that allows it lets it pass";
        steps.say(format!("{direction} of {}: {peer}", pod.name), why);
    }
    let rule = format!("policies of {}", pod.name);
    let how = match (evaluation.outcome, direction) {
        (Outcome::Allowed, _) if direction == Direction::Ingress && who == Who::Node => {
            "allowed: the node's probes are"
        }
        (Outcome::Allowed, _) => "allowed",
        (Outcome::Denied(OnDeny::Refuse), Direction::Egress) => "denied: ECONNREFUSED",
        (Outcome::Denied(OnDeny::Drop), Direction::Egress) => "denied: EHOSTUNREACH, since it is never sent",
        (Outcome::Denied(OnDeny::Refuse), Direction::Ingress) => "denied: a reset, or an ICMP message",
        (Outcome::Denied(OnDeny::Drop), Direction::Ingress) => "denied: without a word",
    };
    steps.say(rule, how);
    match evaluation.outcome {
        Outcome::Allowed => None,
        Outcome::Denied(how) => Some(how),
    }
}

/// `policy shop/web, egress 1: allow TCP 5432 to pods app=db`, or its default.
fn named(policies: &[&Policy], fit: &Fit, direction: Direction) -> String {
    let policy = policies.iter().find(|policy| policy.name == *fit.policy).expect("the rule is one of these policies'");
    let what = match fit.rule {
        Some(place) => words::rule(policy, direction, place),
        None => format!("{direction}: what no rule fits"),
    };
    format!("policy {}, {what}", fit.policy)
}

/// The number and labels of an address, as the tables have them.
fn identity_of(view: &View, peer: IpAddr) -> Option<(u32, Option<Identity>)> {
    let known = view.policing.plan.identities.get(&Address::from(peer))?;
    Some((known.identity, view.policing.identities.name(known.identity).cloned()))
}
