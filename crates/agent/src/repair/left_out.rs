//! Whether a pod that nobody has admitted should have been.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use sidestep_mesh::field::MIRROR;

/// Annotation of a pod with which the value `disabled` keeps it as it is.
const REPAIR: &str = "sidestep.dev/repair";
const DISABLED: &str = "disabled";

/// A pod whose containers run, in a network namespace of its own. Others have no sandbox, or end anyway.
pub fn is_left_out(pod: &Pod) -> bool {
    let annotations = pod.annotations();
    // Nobody can start a pod anew by the API server that the kubelet has from a file.
    let is_kept = annotations.get(REPAIR).is_some_and(|value| value == DISABLED) || annotations.contains_key(MIRROR);
    let uses_host_network = pod.spec.as_ref().is_none_or(|spec| spec.host_network == Some(true));
    !is_kept && !uses_host_network && pod.metadata.deletion_timestamp.is_none() && runs(pod)
}

fn runs(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let has_address = status.pod_ips.as_ref().is_some_and(|all| !all.is_empty());
    let is_running = |one: &ContainerStatus| one.state.as_ref().is_some_and(|state| state.running.is_some());
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    has_address && containers.into_iter().any(is_running)
}

/// Whether somebody starts another one in its place.
pub fn has_controller(pod: &Pod) -> bool {
    pod.owner_references().iter().any(|owner| owner.controller == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(at: &str, value: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": {}},
            "spec": {"nodeName": "node", "containers": [{"name": "app"}]},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
                       "containerStatuses": [{"name": "app", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                                              "state": {"running": {}}}]},
        });
        if !at.is_empty() {
            *pod.pointer_mut(at).unwrap() = value;
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn only_pods_that_run_in_a_network_of_their_own_are_left_out() {
        assert!(is_left_out(&pod("", Value::Null)));
        let others = [
            ("/metadata/annotations", json!({"sidestep.dev/repair": "disabled"})),
            ("/metadata/annotations", json!({"kubernetes.io/config.mirror": "x"})),
            ("/metadata", json!({"name": "web", "deletionTimestamp": "2026-01-02T03:04:05Z"})),
            ("/spec", json!({"hostNetwork": true, "containers": []})),
            ("/status/podIPs", json!([])),
            ("/status/containerStatuses/0/state", json!({"waiting": {"reason": "ContainerCreating"}})),
            ("/status", Value::Null),
        ];
        for (at, value) in others {
            assert!(!is_left_out(&pod(at, value.clone())), "{at}: {value}");
        }
        assert!(is_left_out(&pod("/metadata/annotations", json!({"sidestep.dev/repair": "enabled"}))));
    }

    #[test]
    fn a_pod_that_nobody_starts_again_has_no_controller() {
        assert!(!has_controller(&pod("", Value::Null)));
        let owner = |controller: bool| {
            json!({"name": "web", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r",
                                                      "controller": controller}]})
        };
        assert!(has_controller(&pod("/metadata", owner(true))) && !has_controller(&pod("/metadata", owner(false))));
    }
}
