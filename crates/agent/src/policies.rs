//! Policies, and the pods that they select here, in the words of the answers.

use crate::view::View;
use crate::words;
use sidestep_agent_api as api;
use sidestep_ebpf::error::Result;
use sidestep_mesh::object::{Bypass, Name, Service};
use sidestep_mesh::pod::Pod;
use sidestep_mesh::policy::plan::policies_of;
use sidestep_mesh::policy::rules::{Direction, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Reasons that are about policies, and about ways round proxies.
const REASONS: [&str; 12] = [
    "policy-denied-out",
    "policy-denied-in",
    "policy-would-deny-out",
    "policy-would-deny-in",
    "bypassed-outbound",
    "bypassed-inbound",
    "bypass-refused",
    "source-routed",
    "source-forged",
    "not-admitted-out",
    "not-admitted-in",
    "conversation-not-kept",
];

pub fn all(view: &View) -> Result<api::Policies> {
    let here = here(view);
    let reasons = view.maps.reasons()?.into_iter();
    let reasons = reasons.filter(|(reason, _)| REASONS.contains(reason));
    Ok(api::Policies {
        policies: view.state.policies().map(|policy| one(policy, &here)).collect(),
        pods: here.values().filter_map(|pod| enforced(view, pod)).collect(),
        reasons: reasons.map(|(reason, count)| api::Count { reason: reason.into(), count }).collect(),
        trouble: view.pods.figures.trouble.clone(),
        admitted: view.pods.figures.admitted,
    })
}

/// Pods of this node whose namespaces are known.
fn here(view: &View) -> BTreeMap<Name, Arc<Pod>> {
    let mut pods = view.state.pods();
    pods.retain(|_, pod| pod.netns.is_some());
    pods
}

fn one(policy: &Policy, here: &BTreeMap<Name, Arc<Pod>>) -> api::Policy {
    let default =
        |direction| policy.concerns(direction).then(|| words::action(policy.default_of(direction)).to_string());
    let selected = here.values().filter(|pod| policy.selects(&pod.name.namespace, &pod.labels));
    api::Policy {
        namespace: policy.name.namespace.to_string(),
        name: policy.name.name.to_string(),
        select: policy.select.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        expressions: policy.select.expressions.iter().map(ToString::to_string).collect(),
        egress: default(Direction::Egress),
        ingress: default(Direction::Ingress),
        rules: words::rules(policy),
        dry_run: policy.dry_run,
        on_deny: words::on_deny(policy.on_deny).into(),
        require_proxy: policy.requires_proxy,
        pods: selected.map(|pod| pod.name.to_string()).collect(),
    }
}

/// None: no policy selects it.
fn enforced(view: &View, pod: &Pod) -> Option<api::EnforcedPod> {
    let policies: Vec<String> = policies_of(&view.state, pod).map(|policy| policy.name.to_string()).collect();
    let status = view.pods.statuses.get(&pod.name);
    (!policies.is_empty()).then(|| api::EnforcedPod {
        namespace: pod.name.namespace.to_string(),
        name: pod.name.name.to_string(),
        enforced: status.is_some_and(|status| status.enforced),
        policies,
        troubles: status.map_or_else(|| vec!["not visited yet".into()], |status| status.troubles.clone()),
    })
}

/// What a Service asks for, and whether it gets it.
pub fn bypass(view: &View, service: &Service) -> Option<api::Bypass> {
    let inbound = match service.bypass {
        Bypass::Nobody => return None,
        Bypass::Clients => false,
        Bypass::Both => true,
    };
    let waits = "not yet: not all files have been read, and nobody is led around a proxy who may not be";
    let waiting = (!view.policing.is_whole()).then(|| waits.to_string());
    let refused = view.policing.refused.get(&service.name).map(ToString::to_string).or(waiting);
    Some(api::Bypass { inbound, refused })
}

pub fn figures(view: &View) -> api::PolicingFigures {
    let wanted: BTreeSet<&Name> = view.policing.plan.pods.keys().collect();
    let enforced = view.pods.statuses.iter().filter(|(name, one)| one.enforced && wanted.contains(name)).count();
    let asking = view.state.services().filter(|service| service.bypass != Bypass::Nobody).count();
    let bypass_refused = view.policing.refused.len();
    api::PolicingFigures {
        policies: view.state.policies().count(),
        enforced,
        unenforced: wanted.len() - enforced,
        trouble: view.pods.figures.trouble.is_some(),
        bypassed: asking.saturating_sub(bypass_refused),
        bypass_refused,
        admitted: view.pods.figures.admitted,
    }
}
