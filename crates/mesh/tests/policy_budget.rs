//! What policies of one namespace cost, no other namespace pays, and the thread that plans goes on.

use sidestep_mesh::object::{Name, Object};
use sidestep_mesh::pod::Pod;
use sidestep_mesh::policy::budget::TooMuch;
use sidestep_mesh::policy::identity::Identities;
use sidestep_mesh::policy::plan::{Plan, plan};
use sidestep_mesh::policy::rules::{
    Action, BySide, Direction, Labels, NamedPorts, Namespaces, OnDeny, Peer, Pods, Policy, Rule,
};
use sidestep_mesh::policy::selector::{Requirement, Selector, Wanted};
use sidestep_mesh::policy::tables::{ISOLATED, SAYS_DENY};
use sidestep_mesh::state::{Change, State};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Kinds of pods, and policies, of a greedy namespace.
const KINDS: u32 = 100;
const NOBODYS: u32 = 900;

fn label(key: &str, value: impl ToString) -> Labels {
    [(key.into(), value.to_string().into())].into()
}

fn pod(namespace: &str, number: u32, address: u32) -> Object {
    Object::Pod(Pod {
        name: Name::new(namespace, &format!("pod-{number}")),
        labels: label("kind", number).into(),
        ports: NamedPorts::new(),
        uid: None,
        mirrored: None,
        misread: None,
        addresses: BTreeSet::from([Ipv4Addr::from_bits(0x0a00_0000 + address).into()]),
        node: None,
        requires_proxy: false,
        netns: None,
    })
}

/// Matches every pod, and no comparison can be left out.
fn long() -> Selector {
    let one = |n| Requirement { key: format!("none-{n}").into(), wanted: Wanted::DoesNotExist };
    Selector { labels: Labels::new(), expressions: (0..5000).map(one).collect() }
}

fn policy(namespace: &str, number: u32, select: Selector, peers: Vec<Peer>) -> Object {
    let name = Name::new(namespace, &format!("policy-{number}"));
    let rule = Rule { action: Action::Allow, peers, ports: Vec::new(), named: Vec::new() };
    let policy = Policy {
        name: name.clone(),
        select,
        defaults: BySide { egress: Some(Action::Allow), ingress: Some(Action::Deny) },
        dry_run: false,
        on_deny: OnDeny::Refuse,
        requires_proxy: false,
        rules: BySide { egress: Vec::new(), ingress: vec![rule] },
    };
    Object::NetworkPolicy(name, policy)
}

/// How many pods of the namespace have no entries, for this reason. All of them are isolated.
fn refused(plan: &Plan, namespace: &str, pods: u32) -> usize {
    let its: Vec<_> = plan.pods.iter().filter(|(name, _)| *name.namespace == *namespace).collect();
    assert_eq!(its.len(), pods as usize, "{namespace}: a pod is open");
    let closed = u16::from(ISOLATED | SAYS_DENY);
    for (name, planned) in &its {
        assert_eq!(planned.compiled.defaults.at(Direction::Ingress) & closed, closed, "{name} is open");
    }
    let entries = its.iter().map(|(_, planned)| &planned.compiled.entries);
    let refused: Vec<_> = entries.filter_map(|entries| entries.too_much).collect();
    assert!(refused.iter().all(|why| *why == TooMuch::Looks), "{refused:?}");
    refused.len()
}

#[test]
fn a_tenants_long_selectors_cost_only_the_tenants_own_policies() {
    let mut state = State::default();
    let mut put = |object| _ = state.apply(Change::Put(object));
    let of = |labels: Selector| vec![Peer::Pods(Pods { namespaces: Namespaces::Any, labels })];
    let long = long();
    for n in 0..KINDS {
        put(pod("peers", n, n));
        // Each kind has a policy of its own, so that nothing can be worked out for several kinds at once.
        put(policy("peers", n, label("kind", n).into(), of(long.clone())));
        put(pod("selecting", n, 1000 + n));
        put(policy("selecting", n, long.clone(), Vec::new()));
    }
    (0..NOBODYS).for_each(|n| put(pod("others", n, 2000 + n)));
    put(pod("shop", 0, 3000));
    put(policy("shop", 0, Selector::default(), of(label("kind", 7).into())));

    let began = Instant::now();
    let plan = plan(&state, &mut Identities::default(), &BTreeSet::new(), |pod| *pod.name.namespace != *"others");
    // One tenant's comparisons alone would be 550 million.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(refused(&plan, "peers", KINDS) > 80);
    assert!(refused(&plan, "selecting", KINDS) > 20);
    assert_eq!(refused(&plan, "shop", 1), 0);
    let shop = &plan.pods[&Name::new("shop", "pod-0")].compiled;
    // For TCP, UDP and other protocols, the pods of this kind in three namespaces.
    assert_eq!(shop.entries.rules.len(), 9);
}
