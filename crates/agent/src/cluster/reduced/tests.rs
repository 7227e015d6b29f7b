use super::*;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use serde_json::{Value, json};
use sidestep_mesh::field::{MIRROR, REQUIRE_PROXY};
use sidestep_mesh::kubernetes;
use sidestep_mesh::pod::pod;

fn reduced<K: Reducible>(object: &Value) -> Reduced<K> {
    serde_json::from_str(&object.to_string()).unwrap()
}

/// Another name of an annotation here would let pods around their proxies, or take pods from files for others.
#[test]
fn a_reduced_pod_means_what_the_whole_one_means() {
    let whole = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                     "labels": {"app": "web"}, "annotations": {REQUIRE_PROXY: "true", MIRROR: "m", "other": "x"},
                     "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r",
                                          "controller": true}],
                     "deletionTimestamp": "2026-01-02T03:04:05Z",
                     "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}]},
        "spec": {"nodeName": "n", "volumes": [{"name": "v", "emptyDir": {}}],
                 "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}],
                                 "ports": [{"name": "http", "containerPort": 8080}]}],
                 "initContainers": [{"name": "s", "restartPolicy": "Always",
                                     "ports": [{"name": "admin", "containerPort": 9090}]}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                   "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                                          "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}},
                                         {"name": "d", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                                          "state": {"waiting": {}}}],
                   "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let kept = reduced::<Pod>(&whole).whole().unwrap();
    let read = pod(&serde_json::from_value(whole).unwrap()).unwrap();
    assert!(read.requires_proxy && read.addresses.len() == 2 && read.mirrored.as_deref() == Some("m"), "{read:?}");
    assert_eq!(pod(&kept).unwrap(), read);
    assert!(kept.metadata.managed_fields.is_none() && !kept.annotations().contains_key("other"));
    assert!(kept.metadata.deletion_timestamp.is_some() && kept.owner_references()[0].controller == Some(true));
    assert!(kept.spec.as_ref().unwrap().containers[0].env.is_none());
    let status = kept.status.unwrap();
    assert!(status.conditions.is_none());
    let runs = status.container_statuses.unwrap().into_iter().map(|one| one.state.unwrap().running.is_some());
    assert_eq!(runs.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_pod_that_has_nothing_yet_can_be_read() {
    let new = reduced::<Pod>(&json!({"metadata": {"name": "new"}})).whole().unwrap();
    assert_eq!(pod(&new).unwrap().addresses.len(), 0);
}

#[test]
fn reduced_services_and_slices_mean_what_the_whole_ones_mean() {
    let service = json!({
        "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": "2026-01-02T03:04:05Z",
                     "annotations": {"sidestep.dev/selection": "weighted", "other": "x"}},
        "spec": {"clusterIPs": ["10.96.0.10"], "ports": [{"port": 80, "nodePort": 30080}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.2"}]},
                   "conditions": [{"type": "a", "status": "True", "reason": "b", "message": "",
                                   "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
    });
    let kept = reduced::<Service>(&service).whole().unwrap();
    let whole: Service = serde_json::from_value(service).unwrap();
    assert_eq!(kubernetes::service(&kept).unwrap(), kubernetes::service(&whole).unwrap());
    let slice = json!({
        "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"},
                     "annotations": {"sidestep.dev/weights": "10.0.0.1=3"}},
        "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n"}],
    });
    let kept = reduced::<EndpointSlice>(&slice).whole().unwrap();
    let read = kubernetes::slice(&serde_json::from_value(slice).unwrap()).unwrap();
    assert!(read.is_some());
    assert_eq!(kubernetes::slice(&kept).unwrap(), read);
}

/// A value that cannot be read costs its own object, not the list; what nobody needs costs nothing.
#[test]
fn an_object_that_cannot_be_read_has_its_name() {
    let deep = (0..500).fold(String::from("{}"), |inner, _| format!("{{\"f:x\":{inner}}}"));
    let object = |rest: &str| {
        format!(
            "{{\"metadata\": {{\"name\": \"web\", \"resourceVersion\": \"7\", \"managedFields\": [{{\"manager\": \"m\", \
             \"time\": \"9999-12-31T23:59:59Z\", \"fieldsV1\": {deep}}}]}}{rest}}}"
        )
    };
    let read = |rest: &str| serde_json::from_str::<Reduced<Service>>(&object(rest)).unwrap();
    assert!(read("").whole().is_ok());
    let late = json!({"conditions": [{"type": "a", "status": "True", "reason": "b", "message": "",
                                      "lastTransitionTime": "9999-12-31T23:59:59Z"}]});
    assert!(read(&format!(", \"status\": {late}")).whole().is_ok());
    let wrong = read(", \"spec\": {\"ports\": [{\"port\": \"many\"}]}");
    assert_eq!((wrong.name_any().as_str(), wrong.resource_version().as_deref()), ("web", Some("7")));
    assert_eq!(wrong.whole().unwrap_err().path, "spec");
}
