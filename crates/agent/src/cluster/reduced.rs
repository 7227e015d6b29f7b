//! A v1 Pod without what is not needed here. An API server cannot be asked for parts of a pod, and a pod has some 10 KiB, so
//! everything else is dropped as the answer is read: of other nodes' pods too, policies need labels, addresses and named ports.

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodIP, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use sidestep_mesh::field::{MIRROR, REQUIRE_PROXY};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Pods that have ended have no address: the server leaves them out, and reports the end of a pod as its deletion.
pub const ALIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Read")]
pub struct ReducedPod(pub Pod);

/// What is read of a pod.
#[derive(Deserialize)]
struct Read {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<Annotations>,
}

/// The only annotations that are looked at.
#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "sidestep.dev/require-proxy")]
    require_proxy: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<String>,
}

impl From<Annotations> for BTreeMap<String, String> {
    fn from(all: Annotations) -> BTreeMap<String, String> {
        let known = [(REQUIRE_PROXY, all.require_proxy), (MIRROR, all.mirror)];
        known.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    host_network: Option<bool>,
    #[serde(default)]
    containers: Vec<Ports>,
    init_containers: Option<Vec<Ports>>,
}

/// A container.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ports {
    restart_policy: Option<String>,
    ports: Option<Vec<ContainerPort>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<PodIP>>,
}

impl From<Read> for ReducedPod {
    fn from(read: Read) -> ReducedPod {
        let Read { metadata, spec, status } = read;
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            labels: metadata.labels,
            annotations: metadata.annotations.map(BTreeMap::from),
            ..ObjectMeta::default()
        };
        let spec = PodSpec {
            node_name: spec.node_name,
            host_network: spec.host_network,
            containers: spec.containers.into_iter().map(container).collect(),
            init_containers: spec.init_containers.map(|all| all.into_iter().map(container).collect()),
            ..PodSpec::default()
        };
        let status = PodStatus { phase: status.phase, pod_ips: status.pod_ips, ..PodStatus::default() };
        ReducedPod(Pod { metadata, spec: Some(spec), status: Some(status) })
    }
}

fn container(of: Ports) -> Container {
    Container { restart_policy: of.restart_policy, ports: of.ports, ..Container::default() }
}

impl Resource for ReducedPod {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sidestep_mesh::pod::pod;

    /// Another name of an annotation here would let pods around their proxies, or take pods from files for others.
    #[test]
    fn a_reduced_pod_means_what_the_whole_one_means() {
        let whole = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                         "labels": {"app": "web"}, "annotations": {REQUIRE_PROXY: "true", MIRROR: "m", "other": "x"},
                         "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]},
            "spec": {"nodeName": "n", "volumes": [{"name": "v", "emptyDir": {}}],
                     "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}],
                                     "ports": [{"name": "http", "containerPort": 8080}]}],
                     "initContainers": [{"name": "s", "restartPolicy": "Always",
                                         "ports": [{"name": "admin", "containerPort": 9090}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                       "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let reduced: ReducedPod = serde_json::from_value(whole.clone()).unwrap();
        let read = pod(&serde_json::from_value(whole).unwrap()).unwrap();
        assert!(read.requires_proxy && read.addresses.len() == 2 && read.mirrored.as_deref() == Some("m"), "{read:?}");
        assert_eq!(pod(&reduced.0).unwrap(), read);
        let kept = &reduced.0;
        assert!(kept.metadata.managed_fields.is_none());
        assert!(kept.spec.as_ref().unwrap().containers[0].env.is_none());
        assert!(kept.status.as_ref().unwrap().conditions.is_none());
    }

    #[test]
    fn a_pod_that_has_nothing_yet_can_be_read() {
        let reduced: ReducedPod = serde_json::from_value(json!({"metadata": {"name": "new"}})).unwrap();
        assert_eq!(pod(&reduced.0).unwrap().addresses.len(), 0);
    }
}
