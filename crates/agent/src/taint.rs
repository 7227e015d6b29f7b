//! Removes the taint that keeps pods from a node until its agent is ready. Who registers the node sets it, so that it is there before
//! any pod.

use crate::cluster::{Cluster, ConnectError};
use crate::complaints::Complaints;
use crate::message::QueryHandle;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sidestep_agent_api::Trouble;
use sidestep_error::chain;
use std::time::Duration;

/// Whatever its effect.
const KEY: &str = "sidestep.dev/agent-not-ready";
const PLACE: &str = "removal of the node's taint sidestep.dev/agent-not-ready";
/// The main thread answers within milliseconds, unless it is writing large tables.
const PATIENCE: Duration = Duration::from_secs(5);
/// An API server that does not answer in this time is asked again.
const PATIENCE_FOR_SERVER: Duration = Duration::from_secs(20);
/// Pause before the next attempt.
const AGAIN: Duration = Duration::from_secs(1);
/// A node that is deleted and registered once more has the taint again.
const LOOK: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
enum TaintError {
    #[error("cannot reach the API server")]
    Connect(#[from] ConnectError),
    #[error("the agent's account may not: give its ClusterRole the verbs get and patch for nodes of the core group")]
    Forbidden(#[source] kube::Error),
    #[error("the API server does not answer, or another client has changed the node")]
    Request(#[source] kube::Error),
    #[error("the API server did not answer in {PATIENCE_FOR_SERVER:?}")]
    Slow,
}

impl From<kube::Error> for TaintError {
    fn from(error: kube::Error) -> TaintError {
        match &error {
            kube::Error::Api(status) if status.code == 403 => TaintError::Forbidden(error),
            _ => TaintError::Request(error),
        }
    }
}

/// For ever.
pub fn keep_off(cluster: &Cluster, node: &str, queries: &QueryHandle) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(look_again_and_again(cluster, node, queries)),
        Err(error) => tracing::warn!("the node's taint {KEY} stays: {}", chain(&error)),
    }
}

async fn look_again_and_again(cluster: &Cluster, node: &str, queries: &QueryHandle) {
    let mut complaints = Complaints::default();
    loop {
        let pause = if queries.health(PATIENCE).await.is_some_and(|health| health.is_ready()) {
            let removed = tokio::time::timeout(PATIENCE_FOR_SERVER, remove(cluster, node)).await;
            match removed.unwrap_or(Err(TaintError::Slow)) {
                Ok(()) => {
                    complaints.end(PLACE);
                    LOOK
                }
                Err(error) => {
                    complaints.tell(&Trouble {
                        place: PLACE.into(),
                        what: chain(&error).to_string(),
                        hides_objects: false,
                    });
                    AGAIN
                }
            }
        } else {
            AGAIN
        };
        tokio::time::sleep(pause).await;
    }
}

async fn remove(cluster: &Cluster, name: &str) -> Result<(), TaintError> {
    let nodes = Api::<Node>::all(cluster.connect().await?);
    let Some(node) = nodes.get_opt(name).await? else { return Ok(()) };
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let left: Vec<&Taint> = taints.iter().filter(|taint| taint.key != KEY).collect();
    if left.len() == taints.len() {
        return Ok(());
    }
    // A list is replaced as a whole: not if another client has changed the node since it was read.
    let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": left}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    tracing::info!(node = name, "ready: the taint {KEY} is removed");
    Ok(())
}
