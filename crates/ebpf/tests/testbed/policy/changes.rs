//! Policies and identities change while programs call.

use super::probe::{Family, Seen, call};
use super::world::{PORTS, World};
use crate::sockets::until;
use libbpf_rs::MapCore;
use sidestep_ebpf::capture::pod_network;
use sidestep_ebpf::netns;
use sidestep_ebpf::policy::{Addresses, Policies};
use sidestep_error::chain;
use sidestep_mesh::address::Address;
use sidestep_mesh::address::Protocol::{Tcp, Udp};
use sidestep_mesh::object::Name;
use sidestep_mesh::policy::identity::Identities;
use sidestep_mesh::policy::plan::Known;
use sidestep_mesh::policy::rules::Direction;
use sidestep_mesh::policy::tables::{Compiled, Entries, Gate, RuleKey};
use sidestep_testkit::tables::{Filler, table};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn a_pod_that_gets_other_labels_is_somebody_else_at_once() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("db", "select: {matchLabels: {app: db}}, ingress: [{action: allow, from: [{labels: {app: web}}]}]");
    world.settle();
    let to = world.place(&db, Family::V4, PORTS[0]);
    for (labels, expected) in
        [("{app: web}", Seen::Reached), ("{app: other}", Seen::Refused), ("{app: web}", Seen::Reached)]
    {
        world.label(&web, labels);
        world.settle();
        for protocol in [Tcp, Udp] {
            assert_eq!(world.call(&web, to, protocol), expected, "{labels}");
        }
    }
}

/// Each of two policies allows one of two calls and denies the other. A mixture of the policies would allow both, or none.
#[test]
fn no_call_is_evaluated_by_a_mixture() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    // Many rules, so that writing takes a while.
    let spec = |first: usize| {
        let mut rules = String::new();
        (0..2000)
            .for_each(|i| write!(rules, "{{action: allow, ports: [{{port: {}}}]}}, ", 10_000 + 2 * i + first).unwrap());
        let (deny, allow) = if first == 0 { ("8080", "8081") } else { ("8081", "8080") };
        let decisive =
            format!("{{action: deny, ports: [{{port: {deny}}}]}}, {{action: allow, ports: [{{port: {allow}}}]}}");
        format!("select: {{matchLabels: {{app: web}}}}, egress: [{rules}{decisive}]")
    };
    world.policy("one", &spec(0));
    world.settle();
    let [first, second] = PORTS.map(|port| world.place(&db, Family::V4, port));
    let (over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let namespace = world.pods[&web].namespace.path();
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            sidestep_testkit::enter(&namespace);
            let (mut reached, mut mixed) = ([0, 0], 0);
            while !over.load(Ordering::Relaxed) {
                // There is at most one change in between, which alone causes neither pattern.
                let seen = [call(first, Tcp), call(second, Tcp), call(first, Tcp), call(second, Tcp)];
                let both = seen.map(|seen| seen == Seen::Reached);
                reached[0] += usize::from(both[0]);
                reached[1] += usize::from(both[1]);
                mixed += usize::from(both == [false; 4] || both == [true; 4]);
                calls.fetch_add(1, Ordering::Relaxed);
            }
            (reached, mixed)
        });
        for round in 1..30 {
            world.policy("one", &spec(round % 2));
            world.settle();
            let before = calls.load(Ordering::Relaxed);
            while calls.load(Ordering::Relaxed) < before + 3 && !caller.is_finished() {
                std::thread::yield_now();
            }
        }
        over.store(true, Ordering::Relaxed);
        let (reached, mixed) = caller.join().unwrap();
        assert!(reached[0] > 10 && reached[1] > 10, "{reached:?}");
        assert_eq!(mixed, 0);
    });
}

#[test]
fn a_policy_for_which_there_is_no_room_closes_a_pod_and_changes_none() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let to = world.place(&db, Family::V4, PORTS[0]);
    let mut huge = String::new();
    // Each rule has 65535 entries.
    (0..20).for_each(|i| {
        write!(huge, "{{action: allow, to: [{{cidr: 10.{i}.0.0/16}}], ports: [{{port: 1, endPort: 65534}}]}}, ")
            .unwrap()
    });
    let huge = format!("select: {{matchLabels: {{app: web}}}}, egress: [{huge}{{action: allow}}]");
    world.policy("one", &huge);
    let error = chain(&world.try_settle().unwrap_err()).to_string();
    assert!(error.contains("too small for these rules") && error.contains("the table is full"), "{error}");
    assert_eq!(world.call(&web, to, Tcp), Seen::Refused, "its default is to deny");
    world.policy("one", "select: {matchLabels: {app: web}}, egress: [{action: allow}]");
    world.settle();
    assert_eq!(world.call(&web, to, Tcp), Seen::Reached);
    world.policy("one", &huge);
    world.try_settle().unwrap_err();
    assert_eq!(world.call(&web, to, Tcp), Seen::Reached, "it goes on as it was");
}

/// What is only in force in the one direction must not leave the other one open.
#[test]
fn a_pod_that_keeps_its_policies_is_under_the_defaults_of_the_new_ones() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let (to, back) = (world.place(&db, Family::V4, PORTS[0]), world.place(&web, Family::V4, PORTS[0]));
    world.policy("in", "select: {matchLabels: {app: web}}, ingress: [{action: allow}]");
    world.settle();
    assert_eq!((world.call(&web, to, Tcp), world.call(&db, back, Tcp)), (Seen::Reached, Seen::Reached));
    let ports = "ports: [{port: 1, endPort: 65534}]";
    let huge: String =
        (0..20).map(|i| format!("{{action: allow, to: [{{cidr: 10.{i}.0.0/16}}], {ports}}}, ")).collect();
    world.policy("out", &format!("select: {{matchLabels: {{app: web}}}}, egress: [{huge}]"));
    world.try_settle().unwrap_err();
    assert_eq!((world.call(&web, to, Tcp), world.call(&db, back, Tcp)), (Seen::Refused, Seen::Reached));
    world.policy("out", "select: {matchLabels: {app: web}}, egress: [{action: allow}]");
    world.settle();
    assert_eq!((world.call(&web, to, Tcp), world.call(&db, back, Tcp)), (Seen::Reached, Seen::Reached));
}

/// Anybody may write policies, and have many pods.
#[test]
fn policies_of_one_tenant_leave_room_for_others() {
    let mut world = World::new();
    let greedy = ["a", "b", "c", "d", "e"].map(|name| world.pod("greedy", name, None));
    let [web] = world.apps(["web"]);
    let mut put = |name: &Name, first: u32, count: u32| {
        let gate = Gate { direction: Direction::Egress, protocol: Some(Tcp), port: 80 };
        let rules = (first..first + count).map(|identity| (RuleKey { gate, identity }, 1)).collect();
        let compiled = Compiled { entries: Entries { rules, ..Entries::default() }, ..Compiled::default() };
        let path = world.pods[name].namespace.path();
        let cookie = netns::cookie_of(&path).unwrap();
        world.policies.put(&path, cookie, &name.namespace, &Addresses::default(), &compiled)
    };
    const MOST: u32 = (1 << 20) / 8;
    for (name, first) in greedy.iter().zip(1..5) {
        put(name, first, MOST).unwrap();
    }
    let error = chain(&put(&greedy[4], 9, 1).unwrap_err()).to_string();
    assert!(error.contains("map policy_rules") && error.contains("namespace \"greedy\" have"), "{error}");
    put(&web, 1, 1000).unwrap();
    // What goes makes room.
    put(&greedy[0], 9, 1000).unwrap_err();
    put(&greedy[3], 1, MOST).unwrap();
    put(&greedy[0], 9, 1000).unwrap();
}

#[test]
fn a_pod_whose_addresses_have_no_room_is_under_its_policies_all_the_same() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let to = world.place(&db, Family::V4, PORTS[0]);
    assert_eq!(world.call(&web, to, Tcp), Seen::Reached);
    let filler = Filler::new(table(&world.node.options.pins, "own_addresses"));
    world.policy("web", "select: {matchLabels: {app: web}}, default: {egress: deny}");
    let error = chain(&world.try_settle().unwrap_err()).to_string();
    assert!(error.contains("own_addresses") && error.contains("the table is full"), "{error}");
    assert_eq!(world.call(&web, to, Tcp), Seen::Refused);
    drop(filler);
    world.settle();
    let own = world.place(&web, Family::V4, PORTS[0]);
    assert_eq!((world.call(&web, to, Tcp), world.call(&web, own, Tcp)), (Seen::Refused, Seen::Reached));
}

#[test]
fn a_new_agent_takes_over_without_a_gap() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("db", "select: {matchLabels: {app: db}}, ingress: [{action: allow, from: [{labels: {app: web}}]}]");
    world.settle();
    let to = world.place(&db, Family::V4, PORTS[0]);
    let stranger = world.pod("bank", "stranger", None);
    let check = |world: &World| {
        assert_eq!(world.call(&web, to, Tcp), Seen::Reached);
        assert_eq!(world.call(&stranger, to, Tcp), Seen::Refused);
    };
    check(&world);
    world.policies = Policies::open(&world.node.options.pins).unwrap();
    world.identities = Identities::after(world.policies.last_identity());
    check(&world);
    // The numbers change their meaning: another identity is the first one.
    world.tell("{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: a}, spec: {containers: []}, status: {podIPs: [{ip: 10.9.9.9}]}}");
    world.settle_anew();
    check(&world);
    world.policies.complete().unwrap();
    check(&world);
    world.forget_policies();
    world.settle();
    assert_eq!(world.call(&stranger, to, Tcp), Seen::Reached);
}

/// Nobody evaluates what a pod sends to itself, so an address that the pod has lost must not stay its own.
#[test]
fn what_a_pod_sends_to_an_address_that_it_had_is_evaluated_after_a_restart() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    world.policy("web", "select: {matchLabels: {app: web}}, default: {egress: deny}");
    let to = world.place(&db, Family::V4, PORTS[0]);
    world.pods[&web].namespace.ip(&format!("addr add {}/32 dev lo", to.ip()));
    world.settle();
    world.pods[&web].namespace.ip(&format!("addr del {}/32 dev lo", to.ip()));
    world.policies = Policies::open(&world.node.options.pins).unwrap();
    world.identities = Identities::after(world.policies.last_identity());
    assert_eq!(world.call(&web, to, Tcp), Seen::Reached, "for the tables it is its own");
    world.settle_anew();
    assert_eq!(world.call(&web, to, Tcp), Seen::Refused);
}

#[test]
fn an_address_that_another_host_has_is_not_a_pods_own() {
    let mut world = World::new();
    let [web, db] = world.apps(["web", "db"]);
    let (own, taken) = (world.address(&web, true), world.address(&db, true));
    let pod = &world.pods[&web].namespace;
    pod.ip(&format!("-6 addr add {taken}/64 dev eth0"));
    let addresses = || pod_network::read(&pod.path()).unwrap().addresses;
    until("duplicate address detection has failed", || !addresses().contains(&taken));
    assert!(addresses().contains(&own));
}

#[test]
fn identities_that_were_written_in_part_are_removed_with_their_pods() {
    let mut world = World::new();
    let pins = world.node.options.pins.clone();
    let identities = || table(&pins, "identities");
    let count = || identities().keys().count();
    let before = count();
    let known = |requires_proxy| Known { identity: 7, requires_proxy };
    let at = |ip: &str| ip.parse::<IpAddr>().unwrap().into();
    let wanted: BTreeMap<Address, Known> =
        [(at("10.9.0.1"), known(false)), (at("10.9.0.2"), known(true)), (at("10.9.0.3"), known(true))].into();
    let filler = Filler::leaving(identities(), 1);
    let error = world.policies.write_identities(&wanted).unwrap_err();
    assert!(chain(&error).to_string().contains("addresses"), "{}", chain(&error));
    assert!(!world.policies.knows_who_requires_its_proxy(&wanted));
    drop(filler);
    assert_eq!(count(), before + 1, "one of them has found room");
    world.policies.write_identities(&BTreeMap::new()).unwrap();
    assert_eq!(count(), before);
    world.policies.write_identities(&wanted).unwrap();
    assert!(world.policies.knows_who_requires_its_proxy(&wanted));
    assert_eq!(count(), before + 3);
}
