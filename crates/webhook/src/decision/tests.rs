use super::*;
use serde_json::{Value, json};

const CASE: Case = Case { is_namespace_enrolled: true, permits_host_paths: true };
const LIBRARY: &str = "/usr/lib/sidestep/current/libsidestep.so";

fn places() -> Places {
    let (library, member) = ("/usr/lib/sidestep".into(), "/run/sidestep/member".into());
    Places { library, member, socket: "broker".into() }
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("a pod")
}

/// Of the only container of a pod with this spec, in which it is `app`.
fn decided(case: Case, spec: Value) -> Decision {
    let pod = pod(spec);
    Decider::new(&pod, case, &places(), &Nodes::assumed(), true).decide(&pod.spec.containers[0])
}

fn of_container(container: Value) -> Decision {
    decided(CASE, json!({"containers": [container], "volumes": [{"name": "empty", "emptyDir": {}}, {"name": "other"}]}))
}

fn inject(preload: &str) -> Decision {
    Decision::Inject(preload.into())
}

#[test]
fn ld_preload_is_extended_if_it_is_known() {
    let with = |env: Value, from: Value| of_container(json!({"name": "app", "env": env, "envFrom": from}));
    let unknown = Decision::LeftOut(Reason::UnknownPreload);
    let (none, map) = (json!([]), json!([{"configMapRef": {"name": "m"}}]));
    let literal = |value: &str| json!([{"name": "LD_PRELOAD", "value": value}]);
    assert_eq!(with(none.clone(), none.clone()), inject(LIBRARY));
    assert_eq!(with(literal("a.so"), none.clone()), inject(&format!("a.so:{LIBRARY}")));
    assert_eq!(with(json!([{"name": "LD_PRELOAD"}]), none.clone()), inject(LIBRARY));
    let field = json!([{"name": "LD_PRELOAD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    assert_eq!(with(field, none.clone()), unknown);
    let twice = json!([{"name": "LD_PRELOAD", "value": "a.so"}, {"name": "LD_PRELOAD", "value": ""}]);
    assert_eq!(with(twice, none.clone()), unknown);
    assert_eq!(with(none.clone(), map.clone()), unknown, "the map may have one");
    assert_eq!(with(literal(""), map.clone()), inject(LIBRARY), "a literal comes before a map");
    assert_eq!(with(none.clone(), json!([{"prefix": "APP_", "configMapRef": {}}])), inject(LIBRARY));
    assert_eq!(with(none, json!([{"prefix": "LD_", "configMapRef": {}}])), unknown);
}

#[test]
fn own_settings_stay() {
    for env in [
        json!([{"name": "SIDESTEP_BROKER", "value": "@mine"}]),
        json!([{"name": "SIDESTEP_BROKER", "valueFrom": {}}]),
        json!([{"name": "LD_PRELOAD", "value": "/opt/libsidestep.so"}]),
        json!([{"name": "LD_PRELOAD", "value": LIBRARY}]),
    ] {
        let decided = of_container(json!({"name": "app", "env": env}));
        assert_eq!(decided, Decision::LeftOut(Reason::OwnSettings), "{env}");
    }
}

#[test]
fn mounts_must_leave_room() {
    let with = |mount: Value| of_container(json!({"name": "app", "volumeMounts": [mount]}));
    let conflict = Decision::LeftOut(Reason::MountConflict);
    assert_eq!(with(json!({"name": "empty", "mountPath": "/run"})), inject(LIBRARY));
    assert_eq!(with(json!({"name": "other", "mountPath": "/srv"})), inject(LIBRARY));
    assert_eq!(with(json!({"name": "empty", "mountPath": "/run", "readOnly": true})), conflict);
    assert_eq!(with(json!({"name": "other", "mountPath": "/var/run"})), conflict);
    assert_eq!(with(json!({"name": "other", "mountPath": "/usr/lib/sidestep"})), conflict);
    assert_eq!(with(json!({"name": "unknown", "mountPath": "/usr"})), conflict);
}

#[test]
fn pods_that_cannot_have_it_are_left_out() {
    let restricted = Case { permits_host_paths: false, ..CASE };
    let with = |case, more: Value| {
        let mut spec = json!({"containers": [{"name": "app"}]});
        more.as_object().expect("fields").iter().for_each(|(key, value)| spec[key] = value.clone());
        decided(case, spec)
    };
    for (case, more, reason) in [
        (restricted, json!({}), Reason::PodSecurity),
        (CASE, json!({"hostNetwork": true}), Reason::HostNetwork),
        (CASE, json!({"hostUsers": false}), Reason::UserNamespace),
        (CASE, json!({"os": {"name": "windows"}}), Reason::OtherSystem),
        (restricted, json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), Reason::OtherSystem),
        (CASE, json!({"volumes": [{"name": "sidestep-member", "emptyDir": {}}]}), Reason::OwnSettings),
        (CASE, json!({"volumes": [{"name": "sidestep-library", "hostPath": {"path": "/etc"}}]}), Reason::OwnSettings),
    ] {
        assert_eq!(with(case, more.clone()), Decision::LeftOut(reason), "{more}");
    }
    let linux = json!({"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "linux"}, "hostUsers": true});
    assert_eq!(with(CASE, linux), inject(LIBRARY));
    let namespace = Case { is_namespace_enrolled: false, ..restricted };
    assert_eq!(with(namespace, json!({"hostNetwork": true})), Decision::Nothing, "nobody asks");
}

#[test]
fn a_node_without_the_library_is_in_nobodys_way() {
    let pod = pod(json!({"containers": [{"name": "app"}]}));
    let decided = Decider::new(&pod, CASE, &places(), &Nodes::unknown(), true).decide(&pod.spec.containers[0]);
    assert_eq!(decided, Decision::LeftOut(Reason::OtherNodes));
}
