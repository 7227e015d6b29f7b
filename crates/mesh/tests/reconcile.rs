//! Random Services, endpoints, failures and restarts: in the end the tables agree with a simple model of the objects, and no
//! step has changed anything that a program could have been reading.

use crate::plain::Tables;
use proptest::prelude::*;
use sidestep_mesh::address::{Endpoint, Family, Protocol};
use sidestep_mesh::choose::Node;
use sidestep_mesh::object::*;
use sidestep_mesh::plane::{FrontendKey, Scope, Sizes, Source};
use sidestep_mesh::reconcile::{Problem, Reconciler};
use sidestep_mesh::retired::REST_NS;
use sidestep_mesh::state::{Change, State};
use sidestep_mesh::table::{Policy, PortKey};
use sidestep_mesh::yaml;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Twice what the objects here need at most: all of them are of one namespace.
const ROOM: Sizes = Sizes { slots: 8000, backends: 800, services: 400, frontends: 800, members: 8000, sources: 8000 };

fn ip(n: u8) -> IpAddr {
    [10, 0, 0, n].into()
}

fn node() -> Node {
    Node { name: "here".into(), zone: Some("east".into()), external: true }
}

// --- objects ---------------------------------------------------------------------------------------------------------

fn ports() -> impl Strategy<Value = Vec<Port>> {
    let port = |name: &'static str, protocol| {
        (1u16..4, prop::option::of(1u16..4)).prop_map(move |(port, node)| Port {
            name: name.into(),
            protocol,
            port: 8000 + port,
            node_port: node.map(|n| 30_000 + n),
        })
    };
    (port("one", Protocol::Tcp), port("two", Protocol::Udp), 0usize..3)
        .prop_map(|(one, two, count)| [one, two].into_iter().take(count).collect())
}

fn service() -> impl Strategy<Value = Object> {
    let addresses =
        || prop::collection::btree_set(1u8..6, 0..3).prop_map(|set| set.into_iter().map(ip).collect::<Vec<_>>());
    let selection = prop_oneof![Just(Selection::Random), Just(Selection::Weighted), Just(Selection::LeastConnections)];
    let range =
        prop_oneof![Just("10.9.0.0/16"), Just("10.9.1.0/24"), Just("fd00::/64")].prop_map(|net| net.parse().unwrap());
    let balancer = (addresses(), prop::collection::vec(range, 0..3));
    let local = any::<(bool, bool)>();
    let sorts = (prop::option::of(1u32..100), selection, 0u8..3);
    (0u8..4, addresses(), addresses(), balancer, ports(), local, sorts).prop_map(
        |(name, cluster_ips, external_ips, balancer, ports, local, (affinity_seconds, selection, created))| {
            Object::Service(Service {
                name: Name::new("default", &format!("s{name}")),
                cluster_ips,
                external_ips,
                load_balancer_ips: balancer.0,
                source_ranges: balancer.1,
                ports,
                affinity_seconds,
                internal_local: local.0,
                external_local: local.1,
                health_check_port: None,
                selection,
                bypass: Default::default(),
                created: created.to_string(),
                left: Vec::new(),
            })
        },
    )
}

fn endpoint() -> impl Strategy<Value = SliceEndpoint> {
    let hint = || prop_oneof![3 => Just(vec![]), 1 => Just(vec!["here", "east"]), 1 => Just(vec!["there", "west"])];
    (100u8..110, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), hint(), hint()).prop_map(
        |(address, ready, serving, terminating, local, zones, nodes)| SliceEndpoint {
            address: ip(address),
            ready: ready && !terminating,
            serving,
            terminating,
            node: Some(if local { "here" } else { "there" }.into()),
            zone_hints: zones.into_iter().map(Into::into).collect(),
            node_hints: nodes.into_iter().map(Into::into).collect(),
        },
    )
}

fn slice() -> impl Strategy<Value = Object> {
    let weights = prop::collection::btree_map((100u8..110).prop_map(ip), 0u32..3, 0..4);
    (0u8..5, 0u8..4, prop::collection::vec(endpoint(), 0..5), weights).prop_map(
        |(name, service, endpoints, weights)| {
            let port = |name: &str, protocol| SlicePort { name: name.into(), protocol, port: 80 };
            Object::Slice(Slice {
                name: Name::new("default", &format!("e{name}")),
                service: format!("s{service}").into(),
                ports: vec![port("one", Protocol::Tcp), port("two", Protocol::Udp)],
                endpoints,
                weights,
                left: Vec::new(),
            })
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Put(Object),
    Delete(Key),
    /// The call of the data plane that fails, counted from here.
    Fail(u32),
    /// Advances the clock, and frees what is due.
    Tidy(u64),
    Restart,
    /// The agent dies in this change after so many calls, and another one starts.
    Crash(u32, Object),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => service().prop_map(Step::Put),
        6 => slice().prop_map(Step::Put),
        1 => service().prop_map(|object| Step::Delete(object.key())),
        1 => slice().prop_map(|object| Step::Delete(object.key())),
        1 => (2u32..12).prop_map(Step::Fail),
        2 => (0..2 * REST_NS).prop_map(Step::Tidy),
        1 => Just(Step::Restart),
        1 => (2u32..12, prop_oneof![service(), slice()]).prop_map(|(calls, object)| Step::Crash(calls, object)),
    ]
}

// --- the model: what the objects mean -----------------------------------------------------------------------------------

/// Frontend -> backends; with an empty set connections are refused.
fn meaning(state: &State) -> BTreeMap<FrontendKey, BTreeSet<Endpoint>> {
    let mut services: Vec<&Service> = state.services().collect();
    services.sort_by_key(|service| (service.created.clone(), service.name.clone()));
    services.retain(|service| !service.cluster_ips.is_empty());
    let frontend = |address: IpAddr, port: &Port, number, scope| FrontendKey {
        address: address.into(),
        port: number,
        protocol: port.protocol,
        scope,
    };
    let mut found = BTreeMap::new();
    // Cluster IPs come before addresses that any Service may name.
    for service in &services {
        for port in by_name(&service.ports) {
            for address in &service.cluster_ips {
                let key = frontend(*address, port, port.port, Scope::Address);
                found.entry(key).or_insert_with(|| serving(state, service, port, service.internal_local));
            }
        }
    }
    let given: BTreeSet<FrontendKey> = found.keys().copied().collect();
    for service in &services {
        for port in by_name(&service.ports) {
            let all = service.external_ips.iter().chain(&service.load_balancer_ips).copied().collect::<BTreeSet<_>>();
            let all = all.into_iter().filter(|ip| !service.cluster_ips.contains(ip));
            let any = Family::V4.unspecified().ip();
            let scopes = |address, number, [dialled, external, pod]: [Scope; 3]| {
                let is_pod = service.external_local.then_some((pod, false));
                let each = [(dialled, false), (external, service.external_local)].into_iter().chain(is_pod);
                each.map(move |(scope, local)| (frontend(address, port, number, scope), local)).collect::<Vec<_>>()
            };
            let addresses = all.flat_map(|ip| scopes(ip, port.port, [Scope::Address, Scope::External, Scope::Pod]));
            let node_port = port.node_port.into_iter();
            let node_port = node_port.flat_map(|n| scopes(any, n, [Scope::Node, Scope::ExternalNode, Scope::PodNode]));
            for (key, local) in addresses.chain(node_port) {
                let is_given = [Scope::External, Scope::Pod].contains(&key.scope)
                    && given.contains(&FrontendKey { scope: Scope::Address, ..key });
                if !is_given && (key.scope != Scope::Address || !is_restricted(service, key.address.ip())) {
                    found.entry(key).or_insert_with(|| serving(state, service, port, local));
                }
            }
        }
    }
    found
}

/// All addresses here are IPv4.
fn is_restricted(service: &Service, ip: IpAddr) -> bool {
    service.load_balancer_ips.contains(&ip) && service.source_ranges.iter().any(|range| range.addr().is_ipv4())
}

/// Whether only other nodes have endpoints that may serve, whatever their weights.
fn is_elsewhere(state: &State, service: &Service, key: &PortKey) -> bool {
    let service = Service { selection: Selection::Random, ..service.clone() };
    let port = service.ports.iter().find(|port| port.name == key.port && port.protocol == key.protocol).unwrap();
    let serving = |local_only| serving(state, &service, port, local_only);
    key.policy == Policy::Local && serving(true).is_empty() && !serving(false).is_empty()
}

fn by_name(ports: &[Port]) -> Vec<&Port> {
    let mut ports: Vec<&Port> = ports.iter().collect();
    ports.sort_by_key(|port| port.name.clone());
    ports
}

fn serving(state: &State, service: &Service, port: &Port, local_only: bool) -> BTreeSet<Endpoint> {
    let mut known: BTreeMap<IpAddr, (SliceEndpoint, u32)> = BTreeMap::new();
    for slice in state.slices(&service.name) {
        for endpoint in &slice.endpoints {
            let rank = |one: &SliceEndpoint| (!one.terminating, one.node.as_deref() == Some("here"));
            if known.get(&endpoint.address).is_none_or(|(other, _)| rank(endpoint) > rank(other)) {
                let weight = *slice.weights.get(&endpoint.address).unwrap_or(&1);
                known.insert(endpoint.address, (endpoint.clone(), weight));
            }
        }
    }
    let weighted = service.selection == Selection::Weighted;
    let all: Vec<_> = known.into_values().filter(|(e, _)| !local_only || e.node.as_deref() == Some("here")).collect();
    let ready: Vec<_> = all.iter().filter(|(e, _)| e.ready).cloned().collect();
    let hinted = |here: &str, of: fn(&SliceEndpoint) -> &BTreeSet<std::sync::Arc<str>>| {
        let everybody = ready.iter().all(|(e, _)| !of(e).is_empty());
        let mine: Vec<_> = ready.iter().filter(|(e, _)| of(e).iter().any(|hint| &**hint == here)).cloned().collect();
        (everybody && !mine.is_empty() && !local_only).then_some(mine)
    };
    let near = hinted("here", |e| &e.node_hints).or_else(|| hinted("east", |e| &e.zone_hints)).unwrap_or(ready.clone());
    let draining: Vec<_> = all.iter().filter(|(e, _)| e.serving && e.terminating).cloned().collect();
    let chosen = if near.is_empty() { draining } else { near };
    let _ = port;
    chosen.iter().filter(|(_, weight)| !weighted || *weight > 0).map(|(e, _)| Endpoint::new(e.address, 80)).collect()
}

// --- the run ----------------------------------------------------------------------------------------------------------

struct Run {
    state: State,
    tables: Tables,
    reconciler: Reconciler,
    now: u64,
    /// A change was refused by the data plane and has not been repeated yet.
    unsaid: bool,
}

impl Run {
    fn new(sizes: Sizes) -> Run {
        let mut tables = Tables::new(sizes);
        let reconciler = Reconciler::new(node(), &mut tables).unwrap();
        Run { state: State::default(), tables, reconciler, now: 0, unsaid: false }
    }

    fn change(&mut self, change: Change) {
        let services = self.state.apply(change).services;
        self.unsaid = self.reconciler.apply(&self.state, services, &mut self.tables, self.now).is_err();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(object) => self.change(Change::Put(object)),
            Step::Delete(key) => self.change(Change::Delete(key)),
            Step::Fail(n) => self.tables.fail_in = n,
            Step::Tidy(ns) => {
                self.now += ns;
                let _ = self.reconciler.collect_garbage(&mut self.tables, self.now);
            }
            Step::Restart => self.restart(),
            Step::Crash(calls, object) => {
                self.tables.fail_in = calls;
                self.change(Change::Put(object));
                self.restart();
            }
        }
    }

    fn restart(&mut self) {
        self.tables.fail_in = 0;
        let before: Vec<_> = self.tables.frontends.keys().map(|key| (*key, self.tables.reach(key))).collect();
        self.reconciler = Reconciler::new(node(), &mut self.tables).unwrap();
        let now: Vec<_> = self.tables.frontends.keys().map(|key| (*key, self.tables.reach(key))).collect();
        assert_eq!(before, now, "a start alone changes nothing");
        let names = self.state.services().map(|service| service.name.clone()).collect();
        self.reconciler.apply(&self.state, names, &mut self.tables, self.now).unwrap();
        self.reconciler.complete(&mut self.tables, self.now).unwrap();
        self.unsaid = false;
    }

    fn check(&mut self) {
        if self.unsaid {
            self.tables.fail_in = 0;
            self.reconciler.apply(&self.state, BTreeSet::new(), &mut self.tables, self.now).unwrap();
            self.unsaid = false;
        }
        let reached: BTreeMap<_, _> =
            self.tables.frontends.keys().map(|key| (*key, self.tables.reach(key).unwrap())).collect();
        assert_eq!(reached, meaning(&self.state));
        self.check_members();
        self.check_sources();
    }

    /// The sources are exactly the ranges of the ports with restricted frontends, in the frontends' family.
    fn check_sources(&self) {
        let mut wanted = BTreeSet::new();
        for port in self.reconciler.ports() {
            let service = self.state.service(&port.key.service).unwrap();
            for (key, value) in port.frontends() {
                let expected = key.scope.is_of_packets() && is_restricted(service, key.address.ip());
                assert_eq!(value.restricted, expected, "{key}");
                assert_eq!(value.elsewhere, is_elsewhere(&self.state, service, &port.key), "{key}");
                assert_eq!(value.masquerade, key.scope.is_of_packets() && !service.external_local, "{key}");
                let ranges = service.source_ranges.iter().filter(|range| range.addr().is_ipv4());
                wanted.extend(ranges.filter(|_| expected).map(|range| Source::new(port.service, range)));
            }
        }
        assert_eq!(self.tables.sources, wanted);
    }

    /// Where choices are remembered, the members are the backends in the frontends' lists, and those that datagrams do not leave.
    fn check_members(&self) {
        let ports = self.reconciler.ports();
        let wanted: BTreeSet<(u32, Endpoint)> = ports
            .iter()
            .filter(|port| port.key.protocol == Protocol::Udp || port.table.affinity_seconds > 0)
            .flat_map(|port| port.table.kept().into_iter().map(|endpoint| (port.service, endpoint)))
            .collect();
        let found = self.tables.members.iter().map(|m| (m.service, self.tables.backends[&m.backend])).collect();
        assert_eq!(wanted, found);
    }
}

/// Any tenant may name any address as an external one.
#[test]
fn a_cluster_ip_is_its_services_for_packets_too() {
    let mut run = Run::new(ROOM);
    run.reconciler.complete(&mut run.tables, 0).unwrap();
    let other = "clusterIP: 10.0.0.2, externalIPs: [10.0.0.1], externalTrafficPolicy: Local";
    for (name, spec) in [("other", other), ("its", "clusterIP: 10.0.0.1")] {
        let head = format!("apiVersion: v1, kind: Service, metadata: {{name: {name}}}");
        let text = format!("{{{head}, spec: {{ports: [{{port: 80}}], {spec}}}}}");
        yaml::parse(&text).unwrap().into_iter().for_each(|object| run.change(Change::Put(object)));
    }
    let at = |scope| FrontendKey { address: ip(1).into(), port: 80, protocol: Protocol::Tcp, scope };
    let keys = [Scope::Address, Scope::External, Scope::Pod].map(at);
    let is_there = |run: &Run| keys.each_ref().map(|key| run.tables.frontends.contains_key(key));
    assert_eq!(is_there(&run), [true, false, false]);
    run.change(Change::Delete(Key::Service(Name::new("default", "its"))));
    assert_eq!(is_there(&run), [true; 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tables_say_what_the_objects_mean(steps in prop::collection::vec(step(), 1..40)) {
        let mut run = Run::new(ROOM);
        run.reconciler.complete(&mut run.tables, 0).unwrap();
        for step in steps {
            let quiet = !matches!(step, Step::Fail(_));
            run.step(step);
            if quiet {
                run.check();
            }
        }
    }

    #[test]
    fn everything_is_given_back(steps in prop::collection::vec(step(), 1..40)) {
        let mut run = Run::new(ROOM);
        run.reconciler.complete(&mut run.tables, 0).unwrap();
        steps.into_iter().for_each(|step| run.step(step));
        run.tables.fail_in = 0;
        run.change(Change::All(Vec::new()));
        run.now += REST_NS;
        prop_assert_eq!(run.reconciler.collect_garbage(&mut run.tables, run.now).unwrap(), None);
        let used = run.reconciler.used();
        prop_assert_eq!((used.slots, used.backends, used.services, used.frontends, used.members), (0, 0, 0, 0, 0));
        prop_assert_eq!(used.sources, 0);
        prop_assert!(run.tables.frontends.is_empty() && run.tables.members.is_empty() && run.tables.sources.is_empty());
    }

    /// With too little room a port is left out as a whole and reported, and is programmed once there is room again.
    #[test]
    fn without_room_a_port_is_left_out(steps in prop::collection::vec(step(), 1..40), slots in 1u32..12, backends in 2u32..8, frontends in 1u32..20, members in 0u32..20, sources in 0u32..8) {
        let mut run = Run::new(Sizes { slots, backends, frontends, members, sources, ..ROOM });
        run.reconciler.complete(&mut run.tables, 0).unwrap();
        for step in steps {
            if matches!(step, Step::Fail(_) | Step::Restart | Step::Crash(..)) {
                continue;
            }
            run.step(step);
            let full: BTreeSet<_> = run.reconciler.problems().filter_map(|(_, problem)| match problem {
                Problem::Full { port, .. } => Some(port.clone()),
                Problem::Taken { .. } => None,
            }).collect();
            for (key, expected) in meaning(&run.state) {
                let owner = run.reconciler.owner(&key).unwrap();
                let found = run.tables.reach(&key);
                prop_assert_eq!(found, if full.contains(owner) { None } else { Some(expected) });
            }
        }
    }
}
