//! Whether a pod's connections go through a sidecar of Istio, as istio-cni decides it for the node: by the pod's containers,
//! labels and annotations, which Istio's injector writes.

use super::defaults;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// What a pod says of its sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sidecar {
    /// Nothing of the pod is to be captured, and why.
    Absent(&'static str),
    /// All that the pod's annotations include goes through this proxy.
    Present(Proxy),
}

/// The sidecar's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// User that owns the proxy's sockets.
    pub uid: u32,
    /// Group that owns the proxy's sockets.
    pub gid: u32,
    /// The proxy answers DNS queries.
    pub dns: bool,
}

const PROXY: &str = "istio-proxy";
/// Its iptables rules redirect already.
const INIT: &str = "istio-init";
/// A label, or an annotation, of which the label counts.
const INJECT: &str = "sidecar.istio.io/inject";
/// The injector's mark.
const STATUS: &str = "sidecar.istio.io/status";
const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";

/// What the pod says of its sidecar. Native sidecars are init containers.
pub fn sidecar(pod: &Pod) -> Sidecar {
    let containers: Vec<&Container> = pod.spec.iter().flat_map(containers).collect();
    if containers.iter().any(|container| container.name == INIT) {
        return Sidecar::Absent("its container istio-init redirects with iptables");
    }
    let Some(proxy) = containers.into_iter().find(|container| container.name == PROXY) else {
        return Sidecar::Absent("it has no container istio-proxy");
    };
    if env(proxy, "DISABLE_ENVOY").is_some_and(is_true) {
        return Sidecar::Absent("its container istio-proxy has DISABLE_ENVOY");
    }
    if kind(proxy).is_some_and(|kind| kind != "sidecar") {
        return Sidecar::Absent("its container istio-proxy is no sidecar");
    }
    if label(pod, INJECT).or_else(|| annotation(pod, INJECT)).is_some_and(is_false) {
        return Sidecar::Absent("sidecar.istio.io/inject is false");
    }
    if annotation(pod, STATUS).is_none() {
        return Sidecar::Absent("it has no annotation sidecar.istio.io/status");
    }
    if annotation(pod, INTERCEPTION_MODE) == Some("NONE") {
        return Sidecar::Absent("sidecar.istio.io/interceptionMode is NONE");
    }
    Sidecar::Present(Proxy {
        uid: owner(proxy, |container| container.run_as_user),
        gid: owner(proxy, |container| container.run_as_group),
        dns: env(proxy, "ISTIO_META_DNS_CAPTURE").is_some_and(is_true),
    })
}

/// Which kind of proxy the arguments name, if they begin with `proxy KIND`. Others, such as those of a shell that starts the proxy, name
/// none, and the container counts as a sidecar.
fn kind(proxy: &Container) -> Option<&str> {
    match proxy.args.as_deref()? {
        [first, kind, ..] if first == "proxy" && !kind.is_empty() => Some(kind),
        _ => None,
    }
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

/// Root, and what is not a number of a user, is never the proxy: all programs of root would go around it.
fn owner(proxy: &Container, of: impl Fn(&k8s_openapi::api::core::v1::SecurityContext) -> Option<i64>) -> u32 {
    let given = proxy.security_context.as_ref().and_then(of);
    given.and_then(|id| u32::try_from(id).ok()).filter(|id| *id != 0).unwrap_or(defaults::PROXY)
}

/// A variable that has its value from elsewhere counts as empty. Of one that is named twice the kubelet gives the container the last.
fn env<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let variable = container.env.iter().flatten().rfind(|variable| variable.name == name)?;
    Some(variable.value.as_deref().unwrap_or_default())
}

fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// As Go's strconv.ParseBool reads it, since Istio's programs do.
fn is_true(text: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&text)
}

fn is_false(text: &str) -> bool {
    ["0", "f", "F", "false", "FALSE", "False"].contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn injected() -> Value {
        json!({
            "metadata": {
                "name": "web",
                "labels": {"app": "web"},
                "annotations": {"sidecar.istio.io/status": "{}"},
            },
            "spec": {"containers": [
                {"name": "web"},
                {"name": "istio-proxy", "args": ["proxy", "sidecar", "--domain"],
                 "securityContext": {"runAsUser": 1337, "runAsGroup": 1337}},
            ]},
        })
    }

    /// The pod after `change`.
    fn read(change: impl FnOnce(&mut Value)) -> Sidecar {
        let mut pod = injected();
        change(&mut pod);
        sidecar(&serde_json::from_value(pod).unwrap())
    }

    fn proxy(uid: u32, gid: u32, dns: bool) -> Sidecar {
        Sidecar::Present(Proxy { uid, gid, dns })
    }

    #[test]
    fn an_injected_pod_is_captured() {
        assert_eq!(read(|_| {}), proxy(1337, 1337, false));
        let native = read(|pod| {
            let proxy = pod["spec"]["containers"].as_array_mut().unwrap().remove(1);
            pod["spec"]["initContainers"] = json!([proxy]);
        });
        assert_eq!(native, proxy(1337, 1337, false));
    }

    #[test]
    fn the_proxys_owner_is_that_of_its_container() {
        let owned = |context: Value| read(|pod| pod["spec"]["containers"][1]["securityContext"] = context);
        assert_eq!(owned(json!({"runAsUser": 1000660001, "runAsGroup": 77})), proxy(1_000_660_001, 77, false));
        assert_eq!(owned(json!({"runAsUser": 0, "runAsGroup": 0})), proxy(1337, 1337, false));
        assert_eq!(owned(json!({"runAsUser": -1})), proxy(1337, 1337, false));
        assert_eq!(owned(Value::Null), proxy(1337, 1337, false));
    }

    #[test]
    fn dns_is_captured_if_the_proxy_answers_it() {
        let with = |value: &str| {
            read(|pod| {
                pod["spec"]["containers"][1]["env"] = json!([{"name": "ISTIO_META_DNS_CAPTURE", "value": value}]);
            })
        };
        assert_eq!(with("true"), proxy(1337, 1337, true));
        assert_eq!(with("false"), proxy(1337, 1337, false));
        assert_eq!(with("maybe"), proxy(1337, 1337, false));
    }

    /// istio-cni captures each of them: it looks at the arguments only behind `proxy`.
    #[test]
    fn a_proxy_that_is_wrapped_or_says_no_kind_is_a_sidecar() {
        for args in [
            json!(["-c", "sleep 1; exec pilot-agent proxy sidecar"]),
            json!(["router", "proxy"]),
            json!(["proxy"]),
            json!(["proxy", ""]),
            json!([]),
            Value::Null,
        ] {
            let found = read(|pod| pod["spec"]["containers"][1]["args"] = args.clone());
            assert_eq!(found, proxy(1337, 1337, false), "{args}");
        }
    }

    #[test]
    fn of_a_variable_that_is_named_twice_the_last_counts() {
        let with = |name: &str, values: [&str; 2]| {
            let variables = values.map(|value| json!({"name": name, "value": value}));
            read(|pod| pod["spec"]["containers"][1]["env"] = json!(variables))
        };
        assert_eq!(with("ISTIO_META_DNS_CAPTURE", ["false", "true"]), proxy(1337, 1337, true));
        assert_eq!(with("ISTIO_META_DNS_CAPTURE", ["true", "false"]), proxy(1337, 1337, false));
        assert_eq!(with("DISABLE_ENVOY", ["true", "false"]), proxy(1337, 1337, false));
        assert!(matches!(with("DISABLE_ENVOY", ["false", "true"]), Sidecar::Absent(_)));
    }

    #[test]
    fn whatever_istio_cni_leaves_alone_is_not_captured() {
        type Change = fn(&mut Value);
        let cases: [(&str, Change); 8] = [
            ("no container istio-proxy", |pod| drop(pod["spec"]["containers"].as_array_mut().unwrap().pop())),
            ("istio-init", |pod| pod["spec"]["initContainers"] = json!([{"name": "istio-init"}])),
            ("DISABLE_ENVOY", |pod| {
                pod["spec"]["containers"][1]["env"] = json!([{"name": "DISABLE_ENVOY", "value": "true"}]);
            }),
            ("no sidecar", |pod| pod["spec"]["containers"][1]["args"][1] = "router".into()),
            ("inject is false", |pod| pod["metadata"]["labels"][INJECT] = "false".into()),
            ("inject is false", |pod| pod["metadata"]["annotations"][INJECT] = "false".into()),
            ("status", |pod| pod["metadata"]["annotations"] = json!({})),
            ("interceptionMode is NONE", |pod| {
                pod["metadata"]["annotations"][INTERCEPTION_MODE] = "NONE".into();
            }),
        ];
        for (expected, change) in cases {
            match read(change) {
                Sidecar::Absent(why) => assert!(why.contains(expected), "{why} instead of {expected}"),
                Sidecar::Present(proxy) => panic!("{expected}: {proxy:?}"),
            }
        }
        // The label counts, not the annotation.
        let both = read(|pod| {
            pod["metadata"]["labels"][INJECT] = "true".into();
            pod["metadata"]["annotations"][INJECT] = "false".into();
        });
        assert_eq!(both, proxy(1337, 1337, false));
    }

    #[test]
    fn an_empty_pod_has_no_sidecar() {
        assert!(matches!(sidecar(&Pod::default()), Sidecar::Absent(_)));
    }
}
