//! Removes the taint that keeps pods from a node until its agent is ready. Who registers the node sets it, so that it is there before
//! any pod.

use crate::cluster::Cluster;
use crate::errand::{Errand, ErrandError};
use crate::message::QueryHandle;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// Whatever its effect.
const KEY: &str = "sidestep.dev/agent-not-ready";
const PLACE: &str = "removal of the node's taint sidestep.dev/agent-not-ready";
/// Pause before the next attempt.
const AGAIN: Duration = Duration::from_secs(1);
/// A node that is deleted and registered once more has the taint again.
const LOOK: Duration = Duration::from_secs(60);

/// For ever.
pub fn keep_off(cluster: &Cluster, node: &str, queries: &QueryHandle) {
    let errand = Errand { place: PLACE, queries, pause: LOOK, pause_after_failure: AGAIN };
    errand.run(async || remove(cluster, node).await);
}

async fn remove(cluster: &Cluster, name: &str) -> Result<(), ErrandError> {
    let nodes = Api::<Node>::all(cluster.connect().await?);
    let Some(node) = nodes.get_opt(name).await.map_err(ErrandError::of("get nodes"))? else { return Ok(()) };
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let left: Vec<&Taint> = taints.iter().filter(|taint| taint.key != KEY).collect();
    if left.len() == taints.len() {
        return Ok(());
    }
    // A list is replaced as a whole: not if another client has changed the node since it was read.
    let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": left}});
    let patched = nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map_err(ErrandError::of("patch nodes"))?;
    tracing::info!(node = name, "ready: the taint {KEY} is removed");
    Ok(())
}
