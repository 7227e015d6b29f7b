//! What an agent finds of an earlier one: when not everything can be read, when the earlier one died in the middle of a change,
//! and when the tables are full.

use crate::plain::Tables;
use sidestep_mesh::address::{Endpoint, Protocol};
use sidestep_mesh::choose::Node;
use sidestep_mesh::object::Object;
use sidestep_mesh::plane::{FrontendKey, Member, Scope, Sizes};
use sidestep_mesh::reconcile::{Problem, Reconciler};
use sidestep_mesh::retired::REST_NS;
use sidestep_mesh::state::{Change, Concerned, State};
use sidestep_mesh::yaml;
use std::collections::BTreeSet;
use std::net::IpAddr;

const ROOM: Sizes = Sizes { slots: 100, backends: 100, services: 100, frontends: 100, members: 1000, sources: 1000 };

/// The life of an agent on some tables.
struct Life {
    state: State,
    reconciler: Reconciler,
    tables: Tables,
    now: u64,
}

impl Life {
    fn over(mut tables: Tables) -> Life {
        let node = Node { name: "here".into(), zone: None, external: false };
        let reconciler = Reconciler::new(node, &mut tables).unwrap();
        Life { state: State::default(), reconciler, tables, now: 0 }
    }

    fn first(sizes: Sizes) -> Life {
        let mut life = Life::over(Tables::new(sizes));
        life.complete();
        life
    }

    /// The agent dies, and another one finds its tables.
    fn next(mut self) -> Life {
        self.tables.fail_in = 0;
        Life::over(self.tables)
    }

    fn objects(&mut self, text: &str, change: fn(Object) -> Change) -> std::io::Result<()> {
        let objects = yaml::parse(text).unwrap();
        let concerned: Concerned = objects.into_iter().map(|object| self.state.apply(change(object))).collect();
        self.reconciler.apply(&self.state, concerned.services, &mut self.tables, self.now).map(drop)
    }

    fn put(&mut self, text: &str) {
        self.objects(text, Change::Put).unwrap();
    }

    fn complete(&mut self) {
        self.reconciler.complete(&mut self.tables, self.now).unwrap();
    }

    /// Frees what was replaced; Services that wait for room then get it.
    fn rest(&mut self) {
        self.now += REST_NS;
        self.reconciler.collect_garbage(&mut self.tables, self.now).unwrap();
        if self.reconciler.has_room() {
            self.reconciler.apply(&self.state, BTreeSet::new(), &mut self.tables, self.now).unwrap();
        }
    }

    /// Last bytes of the backends' addresses. None: there is no such frontend.
    fn reach(&self, vip: &str) -> Option<Vec<u8>> {
        let address = vip.parse::<IpAddr>().unwrap().into();
        let key = FrontendKey { address, port: 80, protocol: Protocol::Tcp, scope: Scope::Address };
        self.tables.reach(&key).map(|set| set.iter().map(|endpoint| endpoint.address.0.octets()[15]).collect())
    }
}

fn service(n: u8, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: s{n}}}\n\
         spec: {{clusterIP: 10.96.0.{n}, ports: [{{port: 80}}]{more}}}\n---\n"
    )
}

fn slice(n: u8, endpoints: std::ops::Range<u8>) -> String {
    let each: String = endpoints.map(|e| format!("{{addresses: [10.0.0.{e}]}},")).collect();
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: s{n}-1, labels: \
         {{kubernetes.io/service-name: s{n}}}}}\naddressType: IPv4\nports: [{{port: 8080}}]\nendpoints: [{each}]\n---\n"
    )
}

/// The same objects in another namespace than `default`.
fn of(namespace: &str, text: &str) -> String {
    text.replace("metadata: {", &format!("metadata: {{namespace: {namespace}, "))
}

#[test]
fn an_address_of_a_family_that_the_service_has_not_is_left_alone() {
    let mut life = Life::first(ROOM);
    life.put(&(service(1, ", externalIPs: [192.0.2.1, '2001:db8::1']") + &slice(1, 1..3)));
    assert_eq!((life.reach("192.0.2.1"), life.reach("2001:db8::1")), (Some(vec![1, 2]), None));
    life.put(&service(1, ", externalIPs: [192.0.2.1]").replace("10.96.0.1", "None"));
    assert_eq!(life.reach("192.0.2.1"), None);
}

#[test]
fn endpoints_that_cannot_be_read_serve_on_until_all_is_known() {
    let mut life = Life::first(ROOM);
    life.put(&(service(1, "") + &slice(1, 1..3)));
    let mut life = life.next();
    life.put(&service(1, ""));
    assert_eq!(life.reach("10.96.0.1"), Some(vec![1, 2]));
    life.rest();
    assert_eq!(life.reach("10.96.0.1"), Some(vec![1, 2]));
    // Now it is known that there are no endpoints.
    life.complete();
    assert_eq!(life.reach("10.96.0.1"), Some(vec![]));
    assert!(life.tables.members.is_empty());
}

/// This process knew the Service's endpoints, so an empty list means that there are none: its slots may go to others.
#[test]
fn a_service_that_is_emptied_before_all_is_known_leads_to_nobody_else() {
    let mut life = Life::first(ROOM);
    life.put(&(service(1, "") + &slice(1, 1..3)));
    let mut life = life.next();
    life.put(&(service(1, "") + &slice(1, 1..3)));
    life.put(&slice(1, 1..1));
    assert_eq!(life.reach("10.96.0.1"), Some(vec![]));
    life.rest();
    life.put(&(service(2, "") + &slice(2, 50..52)));
    assert_eq!((life.reach("10.96.0.1"), life.reach("10.96.0.2")), (Some(vec![]), Some(vec![50, 51])));
}

#[test]
fn a_service_that_outgrows_its_room_before_all_is_known_leads_to_nobody_else() {
    let mut life = Life::first(Sizes { slots: 6, ..ROOM });
    life.put(&(service(1, "") + &slice(1, 1..3)));
    let mut life = life.next();
    life.put(&(service(1, "") + &slice(1, 1..3)));
    life.put(&slice(1, 1..7));
    assert_eq!((life.reach("10.96.0.1"), life.reconciler.problems().count()), (None, 1));
    life.rest();
    life.put(&(service(2, "") + &slice(2, 50..52)));
    assert_eq!((life.reach("10.96.0.1"), life.reach("10.96.0.2")), (None, Some(vec![50, 51])));
}

/// The API server limits neither the ranges of a Service nor its ports.
#[test]
fn a_service_with_more_ranges_than_there_is_room_for_hinders_nobody() {
    let mut life = Life::over(Tables::new(Sizes { sources: 32, ..ROOM }));
    let node = Node { name: "here".into(), zone: None, external: true };
    life.reconciler = Reconciler::new(node, &mut life.tables).unwrap();
    life.complete();
    let address = "198.51.100.1".parse::<IpAddr>().unwrap().into();
    let packets = FrontendKey { address, port: 80, protocol: Protocol::Tcp, scope: Scope::External };
    let balanced = |count: u8| {
        let ranges: String = (0..count).map(|n| format!("192.0.2.{n}/32, ")).collect();
        let status = "\nstatus: {loadBalancer: {ingress: [{ip: 198.51.100.1}]}}\n---";
        service(1, &format!(", type: LoadBalancer, loadBalancerSourceRanges: [{ranges}]")).replace("\n---", status)
    };
    life.put(&(balanced(9) + &slice(1, 1..3)));
    life.put(&(service(2, "") + &slice(2, 50..52)));
    assert_eq!((life.reach("10.96.0.1"), life.reach("10.96.0.2")), (None, Some(vec![50, 51])));
    assert_eq!(life.tables.reach(&packets), None);
    let full =
        life.reconciler.problems().filter(|(_, problem)| matches!(problem, Problem::Full { what: "sources", .. }));
    assert_eq!(full.count(), 1);
    life.put(&balanced(8));
    assert_eq!(life.tables.reach(&packets).map(|set| set.len()), Some(2));
}

/// Neither by what it asks for, nor by how often it changes that.
#[test]
fn a_namespace_leaves_room_for_the_services_of_others() {
    let mut life = Life::first(ROOM);
    life.put(&(service(1, "") + &slice(1, 1..3)));
    let ports: String = (0..20).map(|n| format!("{{name: p{n}, port: {}}}, ", 100 + n)).collect();
    let greedy = |endpoints| of("greedy", &slice(9, endpoints).replace("{port: 8080}", &ports));
    life.put(&(of("greedy", &service(9, "").replace("{port: 80}", &ports)) + &greedy(100..104)));
    let greedy_has = |life: &Life| life.reconciler.ports().iter().filter(|port| port.key.port.len() > 1).count();
    assert_eq!(greedy_has(&life), 12, "48 slots of 98");
    let refused = |(_, problem): (_, &Problem)| matches!(problem, Problem::Full { of_namespace: true, .. });
    assert!(life.reconciler.problems().all(refused));
    for first in [110, 120, 130] {
        life.put(&greedy(first..first + 4));
    }
    life.put(&slice(1, 1..11));
    assert_eq!(life.reach("10.96.0.1").map(|all| all.len()), Some(10));
    life.rest();
    assert_eq!((greedy_has(&life), life.reach("10.96.0.1").map(|all| all.len())), (11, Some(10)));
}

#[test]
fn who_is_no_backend_any_more_is_not_remembered() {
    let mut life = Life::first(ROOM);
    let sticky = service(1, ", sessionAffinity: ClientIP");
    life.put(&(sticky.clone() + &slice(1, 1..3)));
    assert_eq!(life.tables.members.len(), 2);
    // Another source fails: `complete` is never called.
    let mut life = life.next();
    life.put(&(sticky + &slice(1, 1..2)));
    assert_eq!((life.tables.members.len(), life.reach("10.96.0.1")), (1, Some(vec![1])));
}

/// As with kube-proxy: a change of readiness ends no flow of datagrams, and no TCP connection.
#[test]
fn an_endpoint_that_terminates_keeps_its_datagrams_as_long_as_it_serves() {
    let udp = |text: String| {
        let text = text.replace("{port: 80}", "{port: 80, protocol: UDP}");
        text.replace("{port: 8080}", "{port: 8080, protocol: UDP}")
    };
    let terminating = |serving: bool| {
        let conditions = format!("conditions: {{ready: false, serving: {serving}, terminating: true}}");
        udp(slice(1, 1..3).replace("[10.0.0.1]}", &format!("[10.0.0.1], {conditions}}}")))
    };
    let mut life = Life::first(ROOM);
    life.put(&udp(service(1, "") + &slice(1, 1..3)));
    let members = life.tables.members.clone();
    assert_eq!(members.len(), 2);
    life.put(&terminating(true));
    let is_listed = |life: &Life| life.tables.frontends.values().map(|frontend| frontend.count).eq([1]);
    assert!(is_listed(&life) && life.tables.members == members);
    let mut life = life.next();
    life.put(&(udp(service(1, "")) + &terminating(true)));
    life.complete();
    assert!(is_listed(&life) && life.tables.members == members);
    life.put(&terminating(false));
    assert!(is_listed(&life) && life.tables.members.len() == 1);
}

/// Members are removed last, so an agent that is killed leaves some whose backends are gone.
#[test]
fn a_number_that_only_a_member_has_is_not_given_away() {
    let mut life = Life::first(ROOM);
    life.put(&(service(1, ", sessionAffinity: ClientIP") + &slice(1, 1..3)));
    let service_of_one = life.tables.frontends.values().next().unwrap().service;
    let next_number = life.tables.backends.keys().next_back().unwrap() + 1;
    life.tables.members.insert(Member { service: service_of_one, backend: next_number });
    let mut life = life.next();
    life.put(&(service(2, "") + &slice(2, 50..51)));
    let number = |life: &Life, last: u8| life.reconciler.backend(&Endpoint::new([10, 0, 0, last].into(), 8080));
    assert!(number(&life, 50).is_some_and(|number| number != next_number));
    life.put(&(service(1, ", sessionAffinity: ClientIP") + &slice(1, 1..3)));
    life.complete();
    life.rest();
    assert!(!life.tables.members.iter().any(|member| member.backend == next_number));
    life.put(&slice(2, 50..53));
    assert!((51..53).any(|last| number(&life, last) == Some(next_number)), "it is free again");
}

#[test]
fn a_policy_has_backends_and_members_of_its_own() {
    let mut life = Life::first(ROOM);
    let local = service(1, ", sessionAffinity: ClientIP, internalTrafficPolicy: Local, externalIPs: [192.0.2.1]");
    let slice = slice(1, 1..3).replace("{addresses: [10.0.0.1]}", "{addresses: [10.0.0.1], nodeName: here}");
    life.put(&(local + &slice));
    assert_eq!((life.reach("10.96.0.1"), life.reach("192.0.2.1")), (Some(vec![1]), Some(vec![1, 2])));
    let services: BTreeSet<u32> = life.tables.frontends.values().map(|frontend| frontend.service).collect();
    let of = |service| life.tables.members.iter().filter(|member| member.service == service).count();
    assert_eq!(services.iter().map(|service| of(*service)).sum::<usize>(), 3);
    assert_eq!(services.len(), 2);
    // A client's choice at one of them is remembered at the other.
    let siblings: BTreeSet<u32> = life.tables.frontends.values().map(|frontend| frontend.sibling).collect();
    assert_eq!(siblings, services);
}

#[test]
fn of_too_many_frontends_all_but_one_are_there_also_after_a_restart() {
    // None takes more than it leaves, so the last one stays free.
    let sizes = Sizes { frontends: 6, ..ROOM };
    let all: String = (1..=6).map(|n| of(&format!("n{n}"), &service(n, ""))).collect();
    let mut life = Life::first(sizes);
    life.put(&all);
    assert_eq!((life.tables.frontends.len(), life.reconciler.problems().count()), (5, 1));
    let mut life = life.next();
    life.put(&all);
    life.complete();
    assert_eq!(life.tables.frontends.len(), 5);
    // One Service goes and one comes, in the same write.
    let gone = life.reconciler.ports()[0].key.service.clone();
    let concerned = life.state.apply(Change::Delete(sidestep_mesh::object::Key::Service(gone)));
    life.reconciler.apply(&life.state, concerned.services, &mut life.tables, life.now).unwrap();
    life.rest();
    assert_eq!((life.tables.frontends.len(), life.reconciler.problems().count()), (5, 0));
}

#[test]
fn a_restart_with_more_than_half_of_the_room_in_use_takes_nothing_away() {
    let mut life = Life::first(Sizes { slots: 10, ..ROOM });
    let text = service(1, "") + &slice(1, 1..4) + &of("other", &(service(2, "") + &slice(2, 4..7)));
    life.put(&text);
    let mut life = life.next();
    life.put(&text);
    let reached = |life: &Life| ["10.96.0.1", "10.96.0.2"].map(|vip| life.reach(vip).unwrap().len());
    assert_eq!(reached(&life), [3, 3]);
    life.complete();
    life.rest();
    assert_eq!(reached(&life), [3, 3]);
    assert_eq!(life.reconciler.problems().count(), 0);
}

/// A pod moves from one Service to another, and the agent dies when the new Service's frontend is written and the old one's
/// is not: both lead to the pod, by two numbers.
#[test]
fn a_number_that_is_in_use_twice_is_not_given_away() {
    for calls in 1..10 {
        let mut life = Life::first(ROOM);
        life.put(&(service(1, "") + &service(2, "") + &slice(1, 1..1) + &slice(2, 1..2)));
        life.rest();
        life.tables.fail_in = calls + 1;
        if life.objects(&(slice(1, 1..2) + &slice(2, 1..1)), Change::Put).is_ok() {
            continue;
        }
        let mut life = life.next();
        let before = (life.reach("10.96.0.1"), life.reach("10.96.0.2"));
        // Both Services cannot be read, and a third one comes. The tables check that nothing in use is overwritten.
        life.put(&(service(3, "") + &slice(3, 50..55)));
        assert_eq!((life.reach("10.96.0.1"), life.reach("10.96.0.2")), before);
    }
}
