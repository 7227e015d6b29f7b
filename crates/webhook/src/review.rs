//! A request of the API server, and the answer. The answer always admits the pod: what cannot be done is told, and the pod stays as it
//! is.

use crate::case::Case;
use crate::decision::{Decider, Decision};
use crate::mutation::{EPHEMERAL, INIT, USUAL, add_volumes, annotate, inject};
use crate::nodes::Nodes;
use crate::places::Places;
use crate::pod::{Container, Pod};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use sidestep_injection::{Outcome, Reason};
use std::collections::{BTreeMap, HashSet};

const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// The annotation that says which containers of a pod do not use rings: `app=own-settings,...`.
const LEFT_OUT: &str = "sidestep.dev/left-out";
/// Most characters of a warning: the API server may cut longer ones.
const LONGEST_WARNING: usize = 256;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(default)]
    namespace: String,
    operation: String,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

/// A request that has no answer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum ReviewError {
    #[error("the body is no AdmissionReview")]
    Parse(#[from] serde_json::Error),
    #[error("the body is {version} {kind}, and must be {VERSION} {KIND}")]
    Other { version: String, kind: String },
}

/// The answer, and what has become of containers.
#[derive(Debug)]
pub struct Reviewed {
    /// An AdmissionReview.
    pub answer: Value,
    /// Of containers, those that were not so before.
    pub outcomes: Vec<Outcome>,
    /// Namespace, name and reasons, for the log; None: nothing is to be told.
    pub told: Option<String>,
}

/// Answers a request.
pub fn review(body: &[u8], case: Case, places: &Places, nodes: &Nodes) -> Result<Reviewed, ReviewError> {
    let Review { api_version, kind, request } = serde_json::from_slice(body)?;
    if api_version != VERSION || kind != KIND {
        return Err(ReviewError::Other { version: api_version, kind });
    }
    let parsed = Pod::deserialize(&request.object);
    let changed = match (&parsed, request.operation.as_str(), request.sub_resource.as_str()) {
        (Ok(pod), "CREATE", "") if !pod.is_mirror() => created(pod, &request.object, case, places, nodes),
        (Ok(pod), "UPDATE", "ephemeralcontainers") => {
            let old = Pod::deserialize(&request.old_object).unwrap_or_default();
            extended(pod, &old, &request.object, case, places, nodes)
        }
        (Err(_), ..) => Changed { outcomes: vec![Outcome::LeftOut(Reason::Undecodable)], ..Changed::default() },
        _ => Changed::default(),
    };
    let name = parsed.as_ref().map_or("", Pod::name);
    let told = changed.left_out.first().map(|_| format!("{}/{name}: {}", request.namespace, changed.listed()));
    let answer = changed.answer(&request);
    let outcomes = if request.dry_run { Vec::new() } else { changed.outcomes };
    Ok(Reviewed { answer, outcomes, told })
}

/// What is done with a pod.
#[derive(Default)]
struct Changed {
    /// The pod; None: as it was.
    object: Option<Value>,
    /// Containers that should use rings, and do not, by their names.
    left_out: Vec<(String, Reason)>,
    outcomes: Vec<Outcome>,
}

/// A new pod.
fn created(pod: &Pod, object: &Value, case: Case, places: &Places, nodes: &Nodes) -> Changed {
    let decider = Decider::new(pod, case, places, nodes, true);
    let mut changed = Changed::default();
    changed.decide(&decider, object, INIT, &pod.spec.init_containers, |_| true);
    changed.decide(&decider, object, USUAL, &pod.spec.containers, |_| true);
    if let Some(new) = &mut changed.object {
        add_volumes(new, places);
    }
    let listed = changed.listed();
    // Another call, since another webhook has changed the pod, tells and counts only what is new.
    if pod.metadata.annotations.get(LEFT_OUT).is_some_and(|told| *told == listed) {
        changed.outcomes.retain(|outcome| *outcome == Outcome::Injected);
    } else if !listed.is_empty() {
        annotate(changed.object.get_or_insert_with(|| object.clone()), LEFT_OUT, &listed);
    }
    changed
}

/// A pod that gets ephemeral containers. Nothing else of it can change.
fn extended(pod: &Pod, old: &Pod, object: &Value, case: Case, places: &Places, nodes: &Nodes) -> Changed {
    let decider = Decider::new(pod, case, places, nodes, false);
    let mut changed = Changed::default();
    let known: HashSet<&str> = old.spec.ephemeral_containers.iter().map(|one| one.name.as_str()).collect();
    let is_new = |one: &Container| !known.contains(one.name.as_str());
    changed.decide(&decider, object, EPHEMERAL, &pod.spec.ephemeral_containers, is_new);
    changed
}

impl Changed {
    fn decide(
        &mut self,
        decider: &Decider<'_>,
        object: &Value,
        kind: &str,
        containers: &[Container],
        is_asked: impl Fn(&Container) -> bool,
    ) {
        for (index, container) in containers.iter().enumerate().filter(|(_, container)| is_asked(container)) {
            match decider.decide(container) {
                Decision::Nothing | Decision::Present => {}
                Decision::LeftOut(reason) => {
                    self.outcomes.push(Outcome::LeftOut(reason));
                    // Who opts out knows.
                    if reason != Reason::OptedOut {
                        self.left_out.push((container.name.clone(), reason));
                    }
                }
                Decision::Inject(preload) => {
                    let new = self.object.get_or_insert_with(|| object.clone());
                    inject(new, kind, index, &preload, decider.places);
                    self.outcomes.push(Outcome::Injected);
                }
            }
        }
    }

    fn listed(&self) -> String {
        let listed: Vec<_> = self.left_out.iter().map(|(name, reason)| format!("{name}={}", reason.name())).collect();
        listed.join(",")
    }

    /// One for each reason: kubectl shows them.
    fn warnings(&self) -> Vec<String> {
        let mut by_reason: BTreeMap<&str, (Reason, Vec<&str>)> = BTreeMap::new();
        for (name, reason) in &self.left_out {
            by_reason.entry(reason.name()).or_insert((*reason, Vec::new())).1.push(name);
        }
        let warning = |(reason, names): &(Reason, Vec<&str>)| {
            let text = format!("no rings ({}): {}: {}", reason.name(), reason.sentence(), names.join(", "));
            text.chars().take(LONGEST_WARNING).collect()
        };
        by_reason.values().map(warning).collect()
    }

    fn answer(&self, request: &Request) -> Value {
        let mut response = json!({"uid": request.uid, "allowed": true});
        if let Some(new) = &self.object {
            let patch = json_patch::diff(&request.object, new);
            let text = serde_json::to_vec(&patch).expect("a patch can always be written as JSON");
            response["patchType"] = "JSONPatch".into();
            response["patch"] = BASE64_STANDARD.encode(text).into();
        }
        let warnings = self.warnings();
        if !warnings.is_empty() {
            response["warnings"] = warnings.into();
        }
        json!({"apiVersion": VERSION, "kind": KIND, "response": response})
    }
}
