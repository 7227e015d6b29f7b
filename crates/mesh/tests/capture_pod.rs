//! Documents of kind Capture, valid and invalid.

use sidestep_mesh::capture::defaults;
use sidestep_mesh::capture::pod::{Capture, Netns};
use sidestep_mesh::capture::rules::{Dns, DnsServers, Rules, WithoutProxy};
use sidestep_mesh::object::{Key, Name, Object};
use sidestep_mesh::policy::plan::policies_of;
use sidestep_mesh::state::{Change, Concerned, State};
use sidestep_mesh::yaml;

const CAPTURE: &str = "
apiVersion: sidestep.dev/v1
kind: Capture
metadata: {name: web-1, namespace: shop, uid: u1, annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: '5432'}}
spec:
  netns: web-1
  cgroup: kubepods/web-1
  addresses: [10.244.0.5, 'fd00:244::5', '::ffff:10.244.0.6']
  proxy: {uid: '1338,1339', gid: '1340', outboundPort: 1, inboundPort: 2, withoutProxy: pass}
  dns: {port: 3, servers: [10.96.0.10]}
";

const SMALLEST: &str = "{apiVersion: sidestep.dev/v1, kind: Capture, metadata: {name: a}, spec: {netns: a}}";

fn capture(text: &str) -> Capture {
    match yaml::parse(text).unwrap().pop() {
        Some(Object::Capture(capture)) => *capture,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_capture_with_everything() {
    let expected = Capture {
        labels: Default::default(),
        requires_proxy: false,
        name: Name::new("shop", "web-1"),
        uid: Some("u1".into()),
        netns: Netns::Name("web-1".into()),
        cgroup: Some("kubepods/web-1".into()),
        addresses: ["10.244.0.5", "fd00:244::5", "10.244.0.6"].map(|ip| ip.parse().unwrap()).to_vec(),
        rules: Rules {
            outbound_port: 1,
            inbound_port: 2,
            dns: Some(Dns { port: 3, servers: DnsServers::These(vec!["10.96.0.10".parse().unwrap()]) }),
            proxy_uids: vec![1338, 1339],
            proxy_gids: vec![1340],
            exclude_outbound_ports: vec![5432],
            without_proxy: WithoutProxy::Pass,
            ..defaults::rules()
        },
    };
    assert_eq!(capture(CAPTURE), expected);
}

#[test]
fn a_capture_with_nothing() {
    let found = capture(SMALLEST);
    assert_eq!((found.name, found.cgroup, found.addresses), (Name::new("default", "a"), None, vec![]));
    assert_eq!(found.rules, defaults::rules());
}

#[test]
fn dns_is_all_of_it_unless_servers_are_named() {
    let dns = |text: &str| capture(&SMALLEST.replace("netns: a", &format!("netns: a, dns: {text}"))).rules.dns.unwrap();
    let all = Dns { port: 15053, servers: DnsServers::All };
    assert_eq!((dns("{}"), dns("{servers: all}")), (all.clone(), all));
    assert_eq!(dns("{servers: []}").servers, DnsServers::These(vec![]));
}

#[test]
fn the_groups_of_a_proxy_are_its_users_unless_they_are_named() {
    let ids = |proxy: &str| {
        let found = capture(&SMALLEST.replace("netns: a", &format!("netns: a, proxy: {proxy}")));
        (found.rules.proxy_uids, found.rules.proxy_gids)
    };
    assert_eq!(ids("{uid: 7}"), (vec![7], vec![7]));
    assert_eq!(ids("{gid: '7'}"), (vec![1337], vec![7]));
}

#[test]
fn a_namespace_is_a_name_a_path_or_a_process() {
    let netns = |text: &str| capture(&SMALLEST.replace("netns: a", &format!("netns: {text}"))).netns;
    assert_eq!(netns("web.1"), Netns::Name("web.1".into()));
    assert_eq!(netns("/proc/7/ns/net"), Netns::Path("/proc/7/ns/net".into()));
    assert_eq!((netns("4711"), netns("'4711'")), (Netns::Pid(4711), Netns::Pid(4711)));
}

#[test]
fn what_is_wrong_is_named() {
    const NETNS: &str = "where a name in /run/netns, an absolute path, or a process's number is expected";
    const CGROUP: &str = "where a path without `..`, absolute or below the agent's cgroup is expected";
    let cases = [
        ("netns: web-1", "netns: a/b", format!("spec.netns: \"a/b\" {NETNS}")),
        ("netns: web-1", "netns: ''", format!("spec.netns: \"\" {NETNS}")),
        ("netns: web-1", "netns: ..", format!("spec.netns: \"..\" {NETNS}")),
        ("netns: web-1", "netns: 0", format!("spec.netns: \"0\" {NETNS}")),
        ("netns: web-1", "netns: []", "spec.netns: invalid type: sequence, expected a string or a number".into()),
        ("  netns: web-1\n", "", "spec: missing field `netns`".into()),
        ("netns: web-1", "netns: a\n  netnt: b", "spec.netnt: no such field".into()),
        ("kubepods/web-1", "kubepods/../web", format!("spec.cgroup: \"kubepods/../web\" {CGROUP}")),
        ("kubepods/web-1", "/", format!("spec.cgroup: \"/\" {CGROUP}")),
        ("10.244.0.5", "10.244.0.5/16", "spec.addresses[0]: \"10.244.0.5/16\" where an IP address is expected".into()),
        ("uid: '1338,1339'", "uid: envoy", "spec.proxy.uid: \"envoy\" where numbers between commas is expected".into()),
        ("gid: '1340'", "gid: ''", "spec.proxy.gid: \"\" where numbers between commas is expected".into()),
        ("outboundPort: 1", "outboundPort: 0", "spec.proxy.outboundPort: 0 where a port from 1 to 65535 is expected".into()),
        ("outboundPort", "outbuondPort", "spec.proxy.outbuondPort: no such field".into()),
        ("withoutProxy: pass", "withoutProxy: open", "spec.proxy.withoutProxy: \"open\" where refuse or pass is expected".into()),
        ("port: 3", "port: 70000", "spec.dns.port: 70000 where a port from 1 to 65535 is expected".into()),
        ("port: 3", "prot: 3", "spec.dns.prot: no such field".into()),
        ("[10.96.0.10]", "some", "spec.dns.servers: \"some\" where all, or a list of IP addresses is expected".into()),
        ("[10.96.0.10]", "[dns]", "spec.dns.servers[0]: \"dns\" where an IP address is expected".into()),
        ("name: web-1, ", "", "metadata.name: () where a name is expected".into()),
        (
            "'5432'",
            "'x'",
            "metadata.annotations[traffic.sidecar.istio.io/excludeOutboundPorts]: \"x\" where a port from 1 to 65535 is expected".into(),
        ),
        ("sidestep.dev/v1", "sidestep.dev/v2", "apiVersion, kind: \"sidestep.dev/v2\" \"Capture\" where v1 Service, Pod or Namespace, discovery.k8s.io/v1 EndpointSlice, networking.k8s.io/v1 NetworkPolicy, or sidestep.dev/v1 Capture or Policy is expected".into()),
    ];
    for (right, wrong, expected) in cases {
        assert!(CAPTURE.contains(right), "{right}");
        let text = format!("{SMALLEST}\n---{}", CAPTURE.replacen(right, wrong, 1));
        assert_eq!(yaml::parse(&text).map_err(|wrong| wrong.to_string()), Err(format!("document 2: {expected}")));
    }
}

#[test]
fn the_state_tells_which_captures_a_change_concerns() {
    let mut state = State::default();
    let (web, a) = (Name::new("shop", "web-1"), Name::new("default", "a"));
    let concerned = |names: &[&Name]| Concerned {
        captures: names.iter().map(|name| (*name).clone()).collect(),
        policy: !names.is_empty(), // a captured pod is a pod
        ..Concerned::default()
    };
    let put = |text: &str| Change::Put(Object::Capture(capture(text).into()));
    assert_eq!(state.apply(put(CAPTURE)), concerned(&[&web]));
    assert_eq!(state.apply(put(CAPTURE)), concerned(&[]), "nothing has changed");
    assert_eq!(state.apply(put(&CAPTURE.replace("5432", "5433"))), concerned(&[&web]));
    assert_eq!(state.capture(&web).unwrap().rules.exclude_outbound_ports, [5433]);
    assert_eq!(state.apply(Change::All(vec![Object::Capture(capture(SMALLEST).into())])), concerned(&[&a, &web]));
    assert_eq!(state.captures().map(|capture| &capture.name).collect::<Vec<_>>(), [&a]);
    assert_eq!(state.apply(Change::Delete(Key::Service(a.clone()))), concerned(&[]));
    assert_eq!(state.apply(Change::Delete(Key::Capture(a.clone()))), concerned(&[&a]));
    assert_eq!(state.apply(Change::Delete(Key::Capture(a))), concerned(&[]));
}

/// A document of a pod with the label `app: web`. `more`: further fields of `metadata`.
fn document(more: &str) -> String {
    format!(
        "{{apiVersion: sidestep.dev/v1, kind: Capture, metadata: {{name: a, namespace: shop, labels: {{app: web}}\
         {more}}}, spec: {{netns: a, addresses: [10.0.0.9]}}}}"
    )
}

/// A Pod object of that name, at another address.
fn object(uid: &str, app: &str, annotations: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: a, namespace: shop, uid: {uid}, labels: {{app: {app}}}, \
         annotations: {{{annotations}}}}}, spec: {{containers: []}}, status: {{podIPs: [{{ip: 10.0.0.1}}]}}}}"
    )
}

/// What the state says of the pod: its policies, and its address.
fn known(texts: &[&str]) -> (Vec<String>, String) {
    let policy = |app: &str| {
        format!(
            "{{apiVersion: sidestep.dev/v1, kind: Policy, metadata: {{name: of-{app}, namespace: shop}}, \
             spec: {{select: {{matchLabels: {{app: {app}}}}}, default: {{ingress: deny}}}}}}"
        )
    };
    let mut state = State::default();
    for text in [policy("web"), policy("db")].iter().map(String::as_str).chain(texts.iter().copied()) {
        yaml::parse(text).unwrap().into_iter().for_each(|object| drop(state.apply(Change::Put(object))));
    }
    let pod = state.pods().remove(&Name::new("shop", "a")).unwrap();
    assert_eq!(pod.netns, Some(Netns::Name("a".into())));
    let policies = policies_of(&state, &pod).map(|policy| policy.name.name.to_string()).collect();
    (policies, pod.addresses.first().unwrap().to_string())
}

/// The runtime starts the new pod before the watch of pods has told of it. What is known of it meanwhile is what its document says.
#[test]
fn the_object_of_an_earlier_pod_of_the_name_says_nothing_of_the_new_one() {
    let of_new = document(", uid: new");
    let expected = |app: &str, address: &str| (vec![format!("of-{app}")], address.to_string());
    let earlier = object("old", "db", "");
    assert_eq!(known(&[&earlier, &of_new]), expected("web", "10.0.0.9"));
    assert_eq!(known(&[&of_new, &earlier]), expected("web", "10.0.0.9"));
    // Its own object comes, and is followed.
    let own = object("new", "db", "");
    assert_eq!(known(&[&earlier, &of_new, &own]), expected("db", "10.0.0.1"));
    // The kubelet has the pod from a file: the object is a mirror.
    let mirror = object("mirrors", "db", "kubernetes.io/config.mirror: new");
    assert_eq!(known(&[&of_new, &mirror]), expected("db", "10.0.0.1"));
    // An operator's document does not say which pod of the name it is about.
    assert_eq!(known(&[&earlier, &document("")]), expected("db", "10.0.0.1"));
}

#[test]
fn the_object_of_another_pod_is_not_that_of_the_captured_one() {
    let mut state = State::default();
    let name = Name::new("shop", "a");
    let mut put = |text: &str| {
        yaml::parse(text).unwrap().into_iter().for_each(|object| drop(state.apply(Change::Put(object))));
        state.pod(&name).and_then(|pod| pod.uid.as_deref().map(str::to_string))
    };
    assert_eq!(put(&object("old", "db", "")).as_deref(), Some("old"));
    assert_eq!(put(&document(", uid: new")), None);
    assert_eq!(put(&object("new", "db", "")).as_deref(), Some("new"));
}
