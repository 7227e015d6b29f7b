//! Documents of kind Policy, Pod and Namespace, valid and invalid.

use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_mesh::object::{Name, Object};
use sidestep_mesh::policy::evaluate::{Connection, Who, fitting};
use sidestep_mesh::policy::identity::{FIRST, Identities, Identity};
use sidestep_mesh::policy::plan::{plan, requires_proxy};
use sidestep_mesh::policy::rules::{
    Action, BySide, Direction, Labels, NamedPorts, Namespaces, OnDeny, Peer, Pods, Policy, Ports, Rule,
};
use sidestep_mesh::policy::selector::Selector;
use sidestep_mesh::state::{Change, State};
use sidestep_mesh::yaml;

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

fn document(spec: &str) -> String {
    format!("{{apiVersion: sidestep.dev/v1, kind: Policy, metadata: {{name: p, namespace: shop}}, spec: {{{spec}}}}}")
}

fn policy(spec: &str) -> Policy {
    match yaml::parse(&document(spec)).unwrap().pop() {
        Some(Object::Policy(policy)) => policy,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_policy_with_everything() {
    let text = "
      select: {matchLabels: {app: web}}, default: {egress: deny, ingress: allow}, dryRun: true, onDeny: drop,
      requireProxy: true,
      egress: [
        {action: allow, to: [{labels: {app: db}}, {namespace: bank}, {namespace: '*', labels: {tier: a}}],
         ports: [{port: 5432}, {port: 1, endPort: 9, protocol: UDP}, {protocol: UDP}]},
        {action: deny, to: [{cidr: 10.0.0.0/8, except: [10.1.0.0/16]}, {node: true}]}],
      ingress: [{action: allow}]";
    let pods = |namespace: Option<&str>, labels| {
        let namespaces = namespace.map_or(Namespaces::Any, |name| Namespaces::Named(name.into()));
        Peer::Pods(Pods { namespaces, labels: Selector::from(labels) })
    };
    let range = Peer::Range { range: "10.0.0.0/8".parse().unwrap(), except: vec!["10.1.0.0/16".parse().unwrap()] };
    let expected = Policy {
        name: Name::new("shop", "p"),
        select: labels([("app", "web")]).into(),
        defaults: BySide { egress: Some(Action::Deny), ingress: Some(Action::Allow) },
        dry_run: true,
        on_deny: OnDeny::Drop,
        requires_proxy: true,
        rules: BySide {
            egress: vec![
                Rule {
                    action: Action::Allow,
                    peers: vec![
                        pods(Some("shop"), labels([("app", "db")])),
                        pods(Some("bank"), Labels::new()),
                        pods(None, labels([("tier", "a")])),
                    ],
                    ports: vec![
                        Ports { protocol: Tcp, first: 5432, last: 5432 },
                        Ports { protocol: Udp, first: 1, last: 9 },
                        Ports::all(Udp),
                    ],
                    named: vec![],
                },
                Rule { action: Action::Deny, peers: vec![range, Peer::Node], ports: vec![], named: vec![] },
            ],
            ingress: vec![Rule { action: Action::Allow, peers: vec![], ports: vec![], named: vec![] }],
        },
    };
    assert_eq!(policy(text), expected);
}

#[test]
fn defaults_that_are_not_written() {
    let nothing = policy("");
    let cases = [
        (nothing, Action::Allow, Action::Allow),
        (policy("egress: [{action: allow}]"), Action::Deny, Action::Allow),
        (policy("ingress: [{action: deny}]"), Action::Allow, Action::Allow),
        (policy("default: {egress: allow}, egress: [{action: allow}]"), Action::Allow, Action::Allow),
        (policy("default: {ingress: deny}"), Action::Allow, Action::Deny),
    ];
    for (policy, egress, ingress) in cases {
        assert_eq!((policy.default_of(Direction::Egress), policy.default_of(Direction::Ingress)), (egress, ingress));
    }
}

#[test]
fn what_is_written_wrongly_is_named() {
    let cases = [
        ("egres: []", "spec.egres", "no such field"),
        ("egress: [{to: [{cidr: 10.0.0.0/8}]}]", "spec.egress[0]", "missing field `action`"),
        ("egress: [{action: permit}]", "spec.egress[0].action", "allow or deny"),
        ("egress: [{action: allow, from: []}]", "spec.egress[0].from", "no such field"),
        ("egress: [{action: allow, to: []}]", "spec.egress[0].to", "at least one"),
        ("egress: [{action: allow, ports: []}]", "spec.egress[0].ports", "at least one"),
        ("egress: [{action: allow, to: [{}]}]", "spec.egress[0].to[0]", "one of"),
        ("egress: [{action: allow, to: [{cidr: 10.0.0.0/8, labels: {a: b}}]}]", "spec.egress[0].to[0]", "one of"),
        ("egress: [{action: allow, to: [{cidr: 10.0.0.0}]}]", "spec.egress[0].to[0].cidr", "a range"),
        ("egress: [{action: allow, to: [{cidr: '::ffff:10.0.0.0/104'}]}]", "spec.egress[0].to[0].cidr", "a range"),
        (
            "egress: [{action: allow, to: [{cidr: 10.0.0.0/8, except: [11.0.0.0/16]}]}]",
            "spec.egress[0].to[0].except",
            "inside",
        ),
        ("egress: [{action: allow, to: [{namespace: ''}]}]", "spec.egress[0].to[0].namespace", "a namespace"),
        (
            "egress: [{action: allow, to: [{labels: {pod-template-hash: x}}]}]",
            "spec.egress[0].to[0].labels",
            "in common",
        ),
        ("egress: [{action: allow, ports: [{port: 0}]}]", "spec.egress[0].ports[0].port", "a port"),
        (
            "egress: [{action: allow, ports: [{port: 9, endPort: 8}]}]",
            "spec.egress[0].ports[0].endPort",
            "no port before",
        ),
        (
            "egress: [{action: allow, ports: [{port: 9, protocol: SCTP}]}]",
            "spec.egress[0].ports[0].protocol",
            "TCP or UDP",
        ),
        ("onDeny: reject", "spec.onDeny", "refuse or drop"),
        ("default: {egress: maybe}", "spec.default.egress", "allow or deny"),
        ("select: {matchExpressions: []}", "spec.select.matchExpressions", "no such field"),
    ];
    for (spec, path, what) in cases {
        let wrong = yaml::parse(&document(spec)).unwrap_err();
        assert!(wrong.path == path && wrong.what.contains(what), "{spec}: {wrong}");
    }
}

const PODS: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop, labels: {app: web, pod-template-hash: x}},
 spec: {containers: []}, status: {podIPs: [{ip: 10.0.0.1}, {ip: 'fd00::1'}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: shop, labels: {app: web, pod-template-hash: y}},
 spec: {containers: []}, status: {podIPs: [{ip: 10.0.0.2}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: host, namespace: shop},
 spec: {containers: [], hostNetwork: true}, status: {podIPs: [{ip: 10.0.0.3}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: done, namespace: shop},
 spec: {containers: []}, status: {phase: Succeeded, podIPs: [{ip: 10.0.0.4}]}}
---
{apiVersion: sidestep.dev/v1, kind: Capture, metadata: {name: c, namespace: bank, labels: {app: db}},
 spec: {netns: c, addresses: [10.0.0.5]}}
";

fn state(text: &str) -> State {
    let mut state = State::default();
    let concerned = state.apply(Change::All(yaml::parse(text).unwrap()));
    assert!(concerned.policy);
    state
}

#[test]
fn who_has_which_address() {
    let state = state(PODS);
    let mut known = Identities::default();
    let found = plan(&state, &mut known, &["10.0.0.9".parse().unwrap()].into(), |_| true);
    let number = |ip: &str| found.identities.get(&ip.parse::<std::net::IpAddr>().unwrap().into()).map(|k| k.identity);
    let (web, db) = (Identity::new("shop", &labels([("app", "web")])), Identity::new("bank", &labels([("app", "db")])));
    assert_eq!([number("10.0.0.1"), number("fd00::1"), number("10.0.0.2")], [known.get(&web); 3]);
    assert_eq!(number("10.0.0.5"), known.get(&db));
    assert_eq!([number("10.0.0.3"), number("10.0.0.4")], [None; 2], "the node's, and nobody's any more");
    assert_eq!(number("10.0.0.9"), Some(1));
    assert!(known.iter().all(|(_, number)| number >= FIRST) && found.pods.is_empty());
}

#[test]
fn an_address_of_two_pods_is_nobodys() {
    let other = "{apiVersion: v1, kind: Pod, metadata: {name: z, namespace: bank}, spec: {containers: []}, status: {podIPs: [{ip: 10.0.0.1}]}}";
    let state = state(&format!("{PODS}---\n{other}"));
    let found = plan(&state, &mut Identities::default(), &[].into(), |_| true);
    let is_known = |ip: &str| found.identities.contains_key(&ip.parse::<std::net::IpAddr>().unwrap().into());
    assert!(!is_known("10.0.0.1") && is_known("fd00::1"));
}

#[test]
fn whose_connections_are_evaluated() {
    let state =
        state(&format!("{PODS}---\n{}", document("select: {matchLabels: {app: web}}, ingress: [{action: allow}]")));
    let names = |here: &dyn Fn(&sidestep_mesh::pod::Pod) -> bool| -> Vec<String> {
        let found = plan(&state, &mut Identities::default(), &[].into(), here);
        found.pods.keys().map(Name::to_string).collect()
    };
    assert_eq!(names(&|_| true), ["shop/a", "shop/b"]);
    assert_eq!(names(&|pod| &*pod.name.name == "b"), ["shop/b"]);
}

#[test]
fn who_requires_the_proxy() {
    let pod = |annotation: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: a, namespace: shop, labels: {{app: web}}, \
             annotations: {{sidestep.dev/require-proxy: {annotation}}}}}, spec: {{containers: []}}}}"
        )
    };
    let namespace =
        "{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {sidestep.dev/require-proxy: 'true'}}}";
    let required = document("select: {matchLabels: {app: web}}, requireProxy: true");
    let cases = [
        (pod("'true'"), true),
        (pod("'false'"), false),
        (format!("{}\n---\n{namespace}", pod("'false'")), true),
        (format!("{}\n---\n{required}", pod("'false'")), true),
    ];
    for (text, expected) in cases {
        let state = state(&text);
        let pod = state.pods().remove(&Name::new("shop", "a")).unwrap();
        assert_eq!(requires_proxy(&state, &pod), expected, "{text}");
    }
    let misspelt = state(&pod("'yes'")).pods().remove(&Name::new("shop", "a")).unwrap();
    assert!(misspelt.requires_proxy);
    assert_eq!(misspelt.misread.as_ref().unwrap().path, "metadata.annotations[sidestep.dev/require-proxy]");
    let misspelt = state(&format!("{}\n---\n{}", pod("'false'"), namespace.replace("'true'", "'ture'")));
    assert!(requires_proxy(&misspelt, &misspelt.pods()[&Name::new("shop", "a")]));
}

/// The annotation must not keep the pod at an address that it has given back.
#[test]
fn a_pod_with_a_misspelt_annotation_has_its_new_address_only() {
    let pod = |name: &str, app: &str, annotations: &str, ip: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop, labels: {{app: {app}}}, \
             annotations: {{{annotations}}}}}, spec: {{containers: []}}, status: {{podIPs: [{{ip: {ip}}}]}}}}"
        )
    };
    let mut state = State::default();
    let puts = [
        pod("a", "web", "", "10.0.0.1"),
        pod("a", "web", "sidestep.dev/require-proxy: ture", "10.0.0.2"),
        pod("b", "db", "", "10.0.0.1"),
    ];
    for object in puts.iter().flat_map(|text| yaml::parse(text).unwrap()) {
        state.apply(Change::Put(object));
    }
    let mut known = Identities::default();
    let found = plan(&state, &mut known, &[].into(), |_| true);
    let of = |ip: &str| *found.identities.get(&ip.parse::<std::net::IpAddr>().unwrap().into()).unwrap();
    assert_eq!(Some(of("10.0.0.1").identity), known.get(&Identity::new("shop", &labels([("app", "db")]))));
    assert!(!of("10.0.0.1").requires_proxy && of("10.0.0.2").requires_proxy);
}

#[test]
fn a_number_is_never_given_twice() {
    let mut known = Identities::default();
    let [a, b] = ["a", "b"].map(|value| Identity::new("shop", &labels([("app", value)])));
    let first = known.number(a.clone());
    known.keep(&[].into());
    assert_ne!(known.number(b), first);
    assert_ne!(known.number(a), first);
    assert_eq!(Identities::after(99).number(Identity::new("", &Labels::new())), 100);
}

#[test]
fn who_asks_why_is_told_which_rules_fit() {
    let policy = policy(
        "dryRun: true, egress: [{action: allow, ports: [{port: 80}]}, {action: deny, to: [{cidr: 10.0.0.0/8}]}]",
    );
    let told = |ip: &str, port| -> Vec<(Option<usize>, Action)> {
        let peer = ip.parse().unwrap();
        let connection = Connection {
            direction: Direction::Egress,
            peer,
            who: Who::Unknown,
            protocol: Some(Tcp),
            port,
            own_ports: &NamedPorts::new(),
        };
        let fits = fitting(&[&policy], &connection);
        assert!(fits.iter().all(|fit| fit.dry_run && *fit.policy == policy.name));
        fits.iter().map(|fit| (fit.rule, fit.action)).collect()
    };
    assert_eq!(told("10.0.0.1", 80), [(Some(0), Action::Allow), (Some(1), Action::Deny)]);
    assert_eq!(told("192.0.2.1", 80), [(Some(0), Action::Allow)]);
    assert_eq!(told("192.0.2.1", 81), [(None, Action::Deny)]);
}

/// All documents in docs/policy.md.
#[test]
fn the_manuals_examples_are_read() {
    let text = include_str!("../../../docs/policy.md");
    let blocks: Vec<&str> = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 3);
    for block in blocks {
        yaml::parse(block).unwrap_or_else(|wrong| panic!("{wrong}\n{block}"));
    }
}
