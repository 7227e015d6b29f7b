//! The patch of any pod: it makes of the pod what is wanted, and nothing else; asked again, nothing more.

use proptest::prelude::*;
use serde_json::{Value, json};
use sidestep_injection::Outcome;
use sidestep_webhook::{Case, Nodes, Places, Reviewed, review};
use std::time::{Duration, Instant};

const LIBRARY: &str = "/usr/lib/sidestep/current/libsidestep.so";
const MEMBER: &str = "/run/sidestep/member";
const KINDS: [&str; 2] = ["initContainers", "containers"];
const CASE: Case = Case { is_namespace_enrolled: true, permits_host_paths: true };

fn places() -> Places {
    Places { library: "/usr/lib/sidestep".into(), member: MEMBER.into(), socket: "broker".into() }
}

fn asked(case: Case, operation: &str, sub_resource: &str, old: &Value, pod: &Value) -> Reviewed {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u1", "namespace": "shop", "operation": operation, "subResource": sub_resource,
        "object": pod, "oldObject": old}});
    review(body.to_string().as_bytes(), case, &places(), &Nodes::assumed()).expect("an answer")
}

fn created(pod: &Value) -> Reviewed {
    asked(CASE, "CREATE", "", &Value::Null, pod)
}

/// The pod as the API server stores it.
fn applied(reviewed: &Reviewed, pod: &Value) -> Value {
    let response = &reviewed.answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u1"), &json!(true)));
    let mut pod = pod.clone();
    if let Some(patch) = response["patch"].as_str() {
        assert_eq!(response["patchType"], "JSONPatch");
        let text = base64(patch);
        let patch: json_patch::Patch = serde_json::from_slice(&text).expect("a patch");
        json_patch::patch(&mut pod, &patch).expect("the patch fits");
    }
    pod
}

fn base64(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.decode(text).expect("base64")
}

/// A pod without what the webhook gives: what is left has to be as it was.
fn without_ours(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let keep = |list: &mut Value, is_ours: &dyn Fn(&Value) -> bool| {
        list.as_array_mut().into_iter().for_each(|list| list.retain(|one| !is_ours(one)));
    };
    let is_volume = |one: &Value| one["name"].as_str().is_some_and(|name| name.starts_with("sidestep-"));
    keep(&mut pod["spec"]["volumes"], &is_volume);
    for kind in KINDS {
        for container in pod["spec"][kind].as_array_mut().into_iter().flatten() {
            keep(&mut container["volumeMounts"], &is_volume);
            for variable in container["env"].as_array_mut().into_iter().flatten() {
                let value = variable["value"].as_str().unwrap_or_default();
                let before =
                    value.strip_suffix(LIBRARY).map(|before| before.strip_suffix(':').unwrap_or(before).to_owned());
                if let Some(before) = before {
                    variable["value"] = before.into();
                }
            }
            keep(&mut container["env"], &|one| {
                one["name"] == "SIDESTEP_BROKER" || (one["name"] == "LD_PRELOAD" && one["value"] == "")
            });
        }
    }
    if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
        annotations.remove("sidestep.dev/left-out");
    }
    pruned(pod)
}

/// Lists and objects without content are as good as none.
fn pruned(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let is_something = |value: &Value| !value.is_null() && *value != json!([]) && *value != json!({});
            let pruned = object.into_iter().map(|(key, value)| (key, pruned(value)));
            Value::Object(pruned.filter(|(_, value)| is_something(value)).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(pruned).collect()),
        other => other,
    }
}

fn variables(container: &Value, name: &str) -> Vec<Value> {
    let all = container["env"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|variable| variable["name"] == name).collect()
}

fn has_all(pod: &Value, container: &Value) -> bool {
    let is_mounted = |name: &str, path: &str| {
        let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
        mounts.contains(&json!({"name": name, "mountPath": path, "readOnly": true}))
    };
    let is_there = |name: &str, path: &str, kind: &str| {
        let volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        volumes.contains(&json!({"name": name, "hostPath": {"path": path, "type": kind}}))
    };
    let (preload, broker) = (variables(container, "LD_PRELOAD"), variables(container, "SIDESTEP_BROKER"));
    let ends = |value: &Value| value["value"].as_str().is_some_and(|value| value.ends_with(LIBRARY));
    matches!(&preload[..], [one] if ends(one) && one.get("valueFrom").is_none())
        && broker == [json!({"name": "SIDESTEP_BROKER", "value": format!("{MEMBER}/broker")})]
        && is_mounted("sidestep-library", "/usr/lib/sidestep/current")
        && is_mounted("sidestep-member", MEMBER)
        && is_there("sidestep-library", "/usr/lib/sidestep/current", "Directory")
        && is_there("sidestep-member", MEMBER, "DirectoryOrCreate")
}

/// A list, an empty one, null, or none.
fn list(one: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(json!([]))),
        4 => prop::collection::vec(one, 1..4).prop_map(|list| Some(list.into())),
    ]
}

fn object(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn variable() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"name": "PATH", "value": "/bin"})),
        Just(json!({"name": "a/b~c", "value": "~1/~0"})),
        "[a-z/~:. ]{0,9}".prop_map(|value| json!({"name": "LD_PRELOAD", "value": value})),
        Just(json!({"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}})),
        Just(json!({"name": "SIDESTEP_BROKER", "value": "@own"})),
    ]
}

fn mount() -> impl Strategy<Value = Value> {
    let paths = ["/srv", "/run", "/usr/lib", "/etc/a~b", "/run/sidestep/member", "/var/run"];
    (prop::sample::select(vec!["v0", "v1", "e"]), prop::sample::select(paths.to_vec()), any::<bool>())
        .prop_map(|(name, path, read_only)| json!({"name": name, "mountPath": path, "readOnly": read_only}))
}

fn container(number: usize) -> impl Strategy<Value = Value> {
    let source = json!([{"configMapRef": {"name": "m"}}]);
    let from = prop_oneof![4 => Just(None), 1 => Just(Some(source))];
    (list(variable()), list(mount()), from).prop_map(move |(env, mounts, from)| {
        object(vec![
            ("name", Some(format!("c{number}").into())),
            ("image", Some("a/b:1".into())),
            ("env", env),
            ("envFrom", from),
            ("volumeMounts", mounts),
            // Of a later release.
            ("unknownField", Some(json!({"a/b": [1, {"~": null}]}))),
        ])
    })
}

fn containers(at_least: usize) -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(any::<prop::sample::Index>(), at_least..4)
        .prop_flat_map(|all| all.iter().enumerate().map(|(number, _)| container(number).boxed()).collect::<Vec<_>>())
}

fn pod() -> impl Strategy<Value = Value> {
    let volumes = list(prop_oneof![
        Just(json!({"name": "v0", "configMap": {"name": "m"}})),
        Just(json!({"name": "e", "emptyDir": {}})),
        Just(json!({"name": "sidestep-member", "hostPath": {"path": MEMBER, "type": "DirectoryOrCreate"}})),
        Just(json!({"name": "sidestep-library", "emptyDir": {}})),
    ]);
    let annotations = prop_oneof![
        Just(None),
        Just(Some(json!({}))),
        Just(Some(json!({"example.org/a~b": "x/y", "sidestep.dev/rings.c0": "disabled"}))),
    ];
    (containers(1), containers(0), volumes, annotations).prop_map(|(containers, init, volumes, annotations)| {
        let metadata = object(vec![("name", Some("p".into())), ("annotations", annotations)]);
        let init = (!init.is_empty()).then(|| init.into());
        let spec = vec![("containers", Some(containers.into())), ("initContainers", init), ("volumes", volumes)];
        json!({"metadata": metadata, "spec": object(spec)})
    })
}

fn all_containers(pod: &Value) -> Vec<Value> {
    KINDS.iter().flat_map(|kind| pod["spec"][*kind].as_array().cloned().unwrap_or_default()).collect()
}

proptest! {
    #[test]
    fn a_patched_pod_has_what_is_wanted_and_is_else_as_it_was(pod in pod()) {
        let reviewed = created(&pod);
        let new = applied(&reviewed, &pod);
        prop_assert_eq!(without_ours(&new), without_ours(&pod));
        let is_injected: Vec<_> = reviewed.outcomes.iter().map(|outcome| *outcome == Outcome::Injected).collect();
        let (before, after) = (all_containers(&pod), all_containers(&new));
        prop_assert_eq!(is_injected.len(), after.len());
        for ((is_injected, before), after) in is_injected.iter().zip(&before).zip(&after) {
            if *is_injected {
                prop_assert!(has_all(&new, after), "{}", after);
            } else {
                prop_assert_eq!(after, before, "left out, and changed");
            }
        }
    }

    #[test]
    fn another_call_changes_nothing(pod in pod()) {
        let once = applied(&created(&pod), &pod);
        let again = created(&once);
        prop_assert_eq!(&again.answer["response"].get("patch"), &None, "{}", once);
        prop_assert!(!again.outcomes.contains(&Outcome::Injected));
    }

    #[test]
    fn any_body_is_survived(body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(review(&body, CASE, &places(), &Nodes::assumed()).is_err());
    }

    #[test]
    fn any_object_is_admitted(field in "(spec|metadata|containers|env)", other in "[a-z\"{}:0-9]{0,9}") {
        for pod in [json!({&field: &other}), json!({"spec": {&field: &other}}), json!({"spec": {&field: [&other, 1, null]}})] {
            let new = applied(&created(&pod), &pod);
            prop_assert_eq!(new, pod);
        }
    }
}

#[test]
fn a_sidecar_that_another_webhook_adds_later_gets_the_library_too() {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app"}]}});
    let mut once = applied(&created(&pod), &pod);
    once["spec"]["initContainers"] = json!([{"name": "proxy", "restartPolicy": "Always"}]);
    let reviewed = created(&once);
    assert_eq!(reviewed.outcomes, [Outcome::Injected], "only the new one is counted");
    let twice = applied(&reviewed, &once);
    assert!(all_containers(&twice).iter().all(|container| has_all(&twice, container)), "{twice}");
    assert_eq!(twice["spec"]["volumes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn who_is_left_out_is_told_once() {
    let containers = json!([{"name": "a", "env": [{"name": "SIDESTEP_BROKER", "value": ""}]},
        {"name": "b", "envFrom": [{"secretRef": {"name": "s"}}]}, {"name": "c"}, {"name": "d"}]);
    let pod =
        json!({"metadata": {"annotations": {"sidestep.dev/rings.d": "disabled"}}, "spec": {"containers": containers}});
    let reviewed = created(&pod);
    let names: Vec<_> = reviewed.outcomes.iter().map(|one| one.reason().map_or("", |reason| reason.name())).collect();
    assert_eq!(names, ["own-settings", "unknown-preload", "", "opted-out"]);
    let warnings = reviewed.answer["response"]["warnings"].as_array().expect("warnings").clone();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().all(|text| text.as_str().is_some_and(|text| text.len() <= 256)), "{warnings:?}");
    assert_eq!(reviewed.told.as_deref(), Some("shop/: a=own-settings,b=unknown-preload"));
    let new = applied(&reviewed, &pod);
    assert_eq!(new["metadata"]["annotations"]["sidestep.dev/left-out"], "a=own-settings,b=unknown-preload");
    assert_eq!(created(&new).outcomes, [], "a second call counts nothing");
}

#[test]
fn a_restricted_namespace_gets_no_volume_and_a_warning() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "app"}]}});
    let restricted = Case::at("/restricted/namespace").expect("a case");
    let reviewed = asked(restricted, "CREATE", "", &Value::Null, &pod);
    let new = applied(&reviewed, &pod);
    assert_eq!(new["spec"], pod["spec"]);
    assert_eq!(new["metadata"]["annotations"], json!({"sidestep.dev/left-out": "app=pod-security"}));
    assert!(reviewed.answer["response"]["warnings"][0].as_str().is_some_and(|text| text.contains("pod-security")));
    let nobody = asked(Case::at("/restricted/pod").expect("a case"), "CREATE", "", &Value::Null, &pod);
    assert!(nobody.answer["response"].get("patch").is_none() && nobody.outcomes.is_empty(), "nobody asks");
}

#[test]
fn ephemeral_containers_get_it_if_the_pod_has_it() {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app"}]}});
    let enrolled = applied(&created(&pod), &pod);
    let debug = |pod: &Value, names: &[&str]| {
        let mut pod = pod.clone();
        pod["spec"]["ephemeralContainers"] = names.iter().map(|name| json!({"name": name})).collect();
        pod
    };
    let (old, new) = (debug(&enrolled, &["first"]), debug(&enrolled, &["first", "second"]));
    let reviewed = asked(CASE, "UPDATE", "ephemeralcontainers", &old, &new);
    assert_eq!(reviewed.outcomes, [Outcome::Injected]);
    let patched = applied(&reviewed, &new);
    let ephemeral = &patched["spec"]["ephemeralContainers"];
    assert_eq!(ephemeral[0], json!({"name": "first"}), "one that is there cannot change");
    assert!(has_all(&patched, &ephemeral[1]), "{patched}");

    let (old, new) = (pod.clone(), debug(&pod, &["first"]));
    let reviewed = asked(CASE, "UPDATE", "ephemeralcontainers", &old, &new);
    assert_eq!(applied(&reviewed, &new), new, "the pod has no volumes, and can get none");
    assert!(reviewed.answer["response"]["warnings"][0].as_str().is_some_and(|text| text.contains("created-before")));
}

#[test]
fn what_is_none_of_its_business_stays() {
    let pod = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"containers": [{"name": "a"}]}});
    for (operation, sub_resource, pod) in [
        ("CREATE", "", &pod),
        ("UPDATE", "", &json!({"spec": {"containers": [{"name": "a"}]}})),
        ("CREATE", "binding", &json!({})),
    ] {
        let reviewed = asked(CASE, operation, sub_resource, &Value::Null, pod);
        assert_eq!(&applied(&reviewed, pod), pod);
        assert!(reviewed.outcomes.is_empty());
    }
}

#[test]
fn another_kind_of_document_is_refused() {
    for (version, kind) in [("admission.k8s.io/v1beta1", "AdmissionReview"), ("admission.k8s.io/v1", "Pod")] {
        let body = json!({"apiVersion": version, "kind": kind, "request": {"uid": "u", "operation": "CREATE"}});
        assert!(review(body.to_string().as_bytes(), CASE, &places(), &Nodes::assumed()).is_err());
    }
}

/// As many parts as fit into a request, which anybody may send. Each compared with each would take minutes.
#[test]
fn a_pod_with_very_many_parts_does_not_hold_up_others() {
    const MANY: usize = 40_000;
    let begun = Instant::now();
    let volumes: Vec<Value> = (0..MANY).map(|n| json!({"name": format!("v{n}")})).collect();
    let mounts: Vec<Value> = (0..MANY).map(|n| json!({"name": "x", "mountPath": format!("/{n}")})).collect();
    let pod = json!({"metadata": {"name": "web"}, "spec": {
        "containers": [{"name": "app", "volumeMounts": mounts}], "volumes": volumes}});
    let reviewed = created(&pod);
    assert_eq!(reviewed.outcomes, [Outcome::Injected]);
    let with = |prefix: &str| {
        let containers: Vec<Value> = (0..MANY).map(|n| json!({"name": format!("{prefix}{n}")})).collect();
        json!({"metadata": {"name": "web"}, "spec": {"containers": [], "ephemeralContainers": containers}})
    };
    let nobody_asks = Case { is_namespace_enrolled: false, ..CASE };
    let reviewed = asked(nobody_asks, "UPDATE", "ephemeralcontainers", &with("old"), &with("new"));
    assert!(reviewed.outcomes.is_empty());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
