//! What is read of a pod that is to be admitted: what makes its document.
//!
//! Whoever may change the pod may write values into its `managedFields` that the server accepts and this program's types do not. What
//! is not needed is skipped, however deep it is.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub struct Asked {
    metadata: Metadata,
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Metadata {
    uid: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    security_context: Option<Owner>,
}

/// Not where its value comes from.
#[derive(Deserialize)]
struct Variable {
    name: String,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    run_as_user: Option<i64>,
    run_as_group: Option<i64>,
}

impl Asked {
    /// The pod, with nothing else in it.
    pub fn read(text: &str) -> serde_json::Result<core::Pod> {
        serde_json::from_str(text).map(Asked::into_pod)
    }

    fn into_pod(self) -> core::Pod {
        let Metadata { uid, labels, annotations } = self.metadata;
        let containers = |all: Vec<Container>| all.into_iter().map(container).collect();
        let spec = |spec: Spec| core::PodSpec {
            containers: spec.containers.map(containers).unwrap_or_default(),
            init_containers: spec.init_containers.map(containers),
            ..core::PodSpec::default()
        };
        core::Pod {
            metadata: ObjectMeta { uid, labels, annotations, ..ObjectMeta::default() },
            spec: self.spec.map(spec),
            ..core::Pod::default()
        }
    }
}

fn container(of: Container) -> core::Container {
    let variable = |one: Variable| core::EnvVar { name: one.name, value: one.value, ..core::EnvVar::default() };
    let owner = |of: Owner| core::SecurityContext {
        run_as_user: of.run_as_user,
        run_as_group: of.run_as_group,
        ..core::SecurityContext::default()
    };
    core::Container {
        name: of.name,
        args: of.args,
        env: of.env.map(|all| all.into_iter().map(variable).collect()),
        security_context: of.security_context.map(owner),
        ..core::Container::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_mesh::capture::sidecar::{Sidecar, sidecar};

    /// Of a native sidecar, with everything that its document is made of. `more`: further metadata.
    fn text(more: &str) -> String {
        format!(
            r#"{{"metadata": {{"name": "web", "uid": "u", "labels": {{"app": "web"}},
                 "annotations": {{"sidecar.istio.io/status": "{{}}"}}{more}}},
                 "spec": {{"containers": [{{"name": "web", "image": "i"}}],
                           "initContainers": [{{"name": "istio-proxy", "args": ["proxy", "sidecar"],
                             "securityContext": {{"runAsUser": 5000, "runAsGroup": 6000}},
                             "env": [{{"name": "POD", "valueFrom": {{"fieldRef": {{"fieldPath": "metadata.name"}}}}}},
                                     {{"name": "ISTIO_META_DNS_CAPTURE", "value": "true"}}]}}]}},
                 "status": {{"phase": "Pending"}}}}"#
        )
    }

    #[test]
    fn the_document_needs_nothing_else() {
        let (kept, whole) = (Asked::read(&text("")).unwrap(), serde_json::from_str::<core::Pod>(&text("")).unwrap());
        assert!(matches!(sidecar(&whole), Sidecar::Present(proxy) if proxy.dns && proxy.uid == 5000));
        assert_eq!(sidecar(&kept), sidecar(&whole));
        let named = |pod: core::Pod| (pod.metadata.uid, pod.metadata.labels, pod.metadata.annotations);
        assert_eq!(named(kept), named(whole));
    }

    #[test]
    fn what_its_owner_writes_into_managed_fields_keeps_no_pod_from_starting() {
        let deep = (0..500).fold(String::from("{}"), |inner, _| format!("{{\"f:x\":{inner}}}"));
        let managed =
            format!(r#", "managedFields": [{{"manager": "m", "time": "9999-12-31T23:59:59Z", "fieldsV1": {deep}}}]"#);
        assert!(serde_json::from_str::<core::Pod>(&text(&managed)).is_err(), "the library's own type");
        assert!(matches!(sidecar(&Asked::read(&text(&managed)).unwrap()), Sidecar::Present(_)));
    }

    #[test]
    fn a_pod_may_have_next_to_nothing() {
        assert_eq!(Asked::read(r#"{"metadata": {}}"#).unwrap(), core::Pod::default());
        assert!(Asked::read("{}").is_err(), "no object");
    }
}
