//! What is done about a pod.

use crate::cluster::Reduced;
use crate::errand::ErrandError;
use crate::settings::Remedy;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use sidestep_mesh::object::Name;

/// Of a pod that runs without having been admitted.
const LABEL: &str = "sidestep.dev/not-admitted";
/// The pod's budget permits no eviction now.
const TOO_MANY_REQUESTS: u16 = 429;
/// It has gone, or another pod has its name.
const GONE: [u16; 2] = [404, 409];

pub fn name(of: &Pod) -> Name {
    Name::new(&namespace(of), &of.name_any())
}

pub fn namespace(of: &Pod) -> String {
    of.namespace().unwrap_or_else(|| "default".into())
}

pub fn is_labelled(pod: &Pod) -> bool {
    pod.labels().contains_key(LABEL)
}

/// A pod that is to be evicted is tried again.
pub fn is_done(pod: &Pod, remedy: Remedy) -> bool {
    remedy == Remedy::Label && is_labelled(pod)
}

/// Sets the label, or takes it away. Whether it did.
pub async fn label(client: &Client, pod: &Pod, is_set: bool) -> Result<bool, ErrandError> {
    // The server refuses the patch for a pod with another UID.
    let patch = json!({"metadata": {"uid": pod.uid(), "labels": {LABEL: is_set.then_some("true")}}});
    // Not `patch_metadata`, whose answer may have values that cannot be read.
    let pods = Api::<Reduced<Pod>>::namespaced(client.clone(), &namespace(pod));
    match pods.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) if is_set => tracing::warn!(pod = %name(pod), "was never admitted: it is labelled {LABEL}"),
        Ok(_) => tracing::info!(pod = %name(pod), "is admitted now: it is not labelled {LABEL} any more"),
        Err(kube::Error::Api(status)) if GONE.contains(&status.code) => return Ok(false),
        Err(error) => return Err(ErrandError::of("patch pods")(error)),
    }
    Ok(true)
}

/// By the API for evictions, which respects disruption budgets. Whether it did.
pub async fn evict(client: &Client, pod: &Pod) -> Result<bool, ErrandError> {
    // Not by kube's own call, whose options have a name that no server knows: the UID would not count.
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
                          "metadata": {"namespace": namespace(pod), "name": pod.name_any()},
                          "deleteOptions": {"preconditions": {"uid": pod.uid()}}});
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace(pod));
    let evicted = pods.create_subresource("eviction", &pod.name_any(), &PostParams::default(), &eviction).await;
    match evicted.map(|_: Value| ()) {
        Ok(()) => tracing::warn!(pod = %name(pod), "was never admitted: it is evicted"),
        Err(kube::Error::Api(status)) if status.code == TOO_MANY_REQUESTS => {
            tracing::info!(pod = %name(pod), "was never admitted: its disruption budget permits no eviction now");
            return Ok(false);
        }
        Err(kube::Error::Api(status)) if GONE.contains(&status.code) => return Ok(false),
        Err(error) => return Err(ErrandError::of("create pods/eviction")(error)),
    }
    Ok(true)
}
