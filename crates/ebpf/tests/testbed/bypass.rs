//! Services whose connections bypass both proxies.

use crate::capture::world::{INBOUND, Met, OUTBOUND, World, dial_as, of, program, proxy, rules};
use crate::node::{plain_service, slice};
use crate::sockets::{at, mapped};
use sidestep_ebpf::bypass::Bypasses;
use sidestep_ebpf::netns;
use sidestep_ebpf::policy::{Addresses, Policies};
use sidestep_mesh::address::Protocol::Tcp;
use sidestep_mesh::bypass::plan;
use sidestep_mesh::object::{Bypass, Object};
use sidestep_mesh::plane::Scope;
use sidestep_mesh::policy;
use sidestep_mesh::policy::identity::Identities;
use sidestep_mesh::state::Change;
use sidestep_mesh::yaml;
use sidestep_testkit::Pod;
use sidestep_testkit::greeter::{Greeter, PROXY, ROOT};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A client and a server with their proxies, and the Service between them.
struct Pair {
    _programs: Vec<Greeter>,
    client: Pod,
    server: Pod,
    bypasses: Bypasses,
    policies: Policies,
    identities: Identities,
    world: World,
}

const VIP: &str = "10.96.0.10";

impl Pair {
    fn new(bypass: Bypass) -> Pair {
        let mut world = World::new();
        let (client, server) = (world.pod(), world.pod());
        let programs = vec![proxy(&client), proxy(&server), program(&server, 8080)];
        world.capture(&client, &rules());
        world.capture(&server, &rules());
        let (bypasses, policies) =
            (Bypasses::open(&world.node.options.pins).unwrap(), Policies::open(&world.node.options.pins).unwrap());
        let identities = Identities::default();
        let mut pair = Pair { _programs: programs, client, server, bypasses, policies, identities, world };
        pair.service("web", bypass, VIP);
        pair.pod("server", "false");
        pair.settle();
        pair
    }

    fn service(&mut self, name: &str, bypass: Bypass, vip: &str) {
        let mut service = plain_service(name, Tcp, vip, 80);
        service.bypass = bypass;
        service.ports[0].node_port = (name == "web").then_some(30_080);
        self.world.node.change(Change::Put(Object::Service(service)));
        let slice = slice(name, Tcp, [(self.server.v4, 8080)]);
        self.world.node.change(Change::Put(Object::Slice(slice)));
    }

    fn pod(&mut self, name: &str, annotation: &str) {
        let ip = if name == "client" { self.client.v4 } else { self.server.v4 };
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}, annotations: \
             {{sidestep.dev/require-proxy: '{annotation}'}}}}, spec: {{containers: []}}, status: {{podIPs: [{{ip: {ip}}}]}}}}"
        );
        self.tell(&text);
    }

    fn tell(&mut self, text: &str) {
        for object in yaml::parse(text).unwrap() {
            self.world.node.change(Change::Put(object));
        }
    }

    fn settle(&mut self) {
        let state = &self.world.node.state;
        let ways = plan(state, self.world.node.reconciler.node(), |_, _| true).bypasses;
        let pods = state.pods();
        let required = pods.values().filter(|pod| policy::plan::requires_proxy(state, pod));
        let namespaces = [&self.client, &self.server].map(|pod| (pod.v4, pod.namespace.path()));
        let cookies: BTreeSet<u64> = required
            .flat_map(|pod| namespaces.iter().filter(|(ip, _)| pod.addresses.contains(ip)))
            .map(|(_, path)| netns::cookie_of(path).unwrap())
            .collect();
        self.bypasses.set(&ways, &cookies).unwrap();
        let plan = policy::plan::plan(state, &mut self.identities, &[].into(), |_| true);
        for (name, planned) in &plan.pods {
            let pod = if &*name.name == "client" { &self.client } else { &self.server };
            let path = pod.namespace.path();
            let own = Addresses::own([pod.v4, pod.v6]);
            self.policies
                .put(&path, netns::cookie_of(&path).unwrap(), &name.namespace, &own, &planned.compiled)
                .unwrap();
        }
        self.policies.write_identities(&plan.identities).unwrap();
        self.policies.use_identities().unwrap();
    }

    fn dial(&self, to: SocketAddr) -> Met {
        dial_as(&self.client, ROOT, to).unwrap()
    }

    /// The server's listener for a connection that the client's proxy forwards.
    fn forwarded(&self) -> u16 {
        dial_as(&self.client, PROXY, of(self.server.v4, 8080)).unwrap().seen.listener
    }

    fn counted(&self) -> [u64; 3] {
        ["bypassed-outbound", "bypassed-inbound", "bypass-refused"].map(|reason| self.world.node.reason(reason))
    }
}

#[test]
fn from_the_program_to_the_program() {
    let mut pair = Pair::new(Bypass::Both);
    pair.world.node.maps.set_node_addresses(&[at("10.244.0.1", 0).ip().into()].into(), |_| true).unwrap();
    let direct = of(pair.server.v4, 8080);
    let places = [at(VIP, 80), mapped(at(VIP, 80)), direct, mapped(direct), at("10.244.0.1", 30_080)];
    for to in places {
        let met = pair.dial(to);
        assert_eq!((met.seen.listener, met.seen.local, met.peer), (8080, direct, to), "{to}");
    }
    assert_eq!(pair.counted(), [5, 5, 0]);
    assert_eq!(pair.world.node.counters("web").picks, 3, "what is dialled by the Service is balanced");
    let other = pair.dial(of(pair.server.v4, 9090));
    assert_eq!(other.seen.listener, OUTBOUND, "another port of the same pod");
    assert_eq!(pair.forwarded(), 8080);
}

#[test]
fn a_service_that_does_not_ask_goes_through_both() {
    let pair = Pair::new(Bypass::Nobody);
    assert_eq!(pair.dial(at(VIP, 80)).seen.listener, OUTBOUND);
    assert_eq!(pair.forwarded(), INBOUND);
    assert_eq!(pair.counted(), [0, 0, 0]);
}

#[test]
fn clients_first() {
    let pair = Pair::new(Bypass::Clients);
    let met = pair.dial(at(VIP, 80));
    assert_eq!((met.seen.listener, met.seen.original), (INBOUND, Some(of(pair.server.v4, 8080))));
    assert_eq!(pair.counted(), [1, 0, 0]);
}

#[test]
fn who_requires_the_proxy_is_never_led_around_it() {
    for asking in ["client", "server"] {
        let mut pair = Pair::new(Bypass::Both);
        pair.pod("client", "false");
        pair.pod("server", "false");
        pair.settle();
        assert_eq!(pair.dial(at(VIP, 80)).seen.listener, 8080);
        pair.pod(asking, "true");
        pair.settle();
        assert_eq!(pair.dial(at(VIP, 80)).seen.listener, OUTBOUND, "{asking}");
        assert_eq!(pair.forwarded(), INBOUND, "{asking}");
        pair.pod(asking, "false");
        pair.settle();
        assert_eq!((pair.dial(at(VIP, 80)).seen.listener, pair.forwarded()), (8080, 8080), "{asking}");
    }
}

#[test]
fn a_policy_may_require_it_and_is_obeyed_on_the_short_way() {
    let mut pair = Pair::new(Bypass::Both);
    pair.pod("client", "false");
    pair.pod("server", "false");
    let policy =
        |spec: &str| format!("{{apiVersion: sidestep.dev/v1, kind: Policy, metadata: {{name: p}}, spec: {{{spec}}}}}");
    pair.tell(&policy("select: {matchLabels: {app: client}}, requireProxy: true"));
    pair.settle();
    assert_eq!(pair.dial(at(VIP, 80)).seen.listener, OUTBOUND);
    for spec in [
        "select: {matchLabels: {app: client}}, default: {egress: deny}",
        "select: {matchLabels: {app: server}}, default: {ingress: deny}",
    ] {
        pair.tell(&policy(spec));
        pair.settle();
        let refused = dial_as(&pair.client, ROOT, at(VIP, 80)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{spec}");
    }
}

#[test]
fn a_backend_that_goes_is_its_pods_own_again() {
    let mut pair = Pair::new(Bypass::Both);
    assert_eq!(pair.forwarded(), 8080);
    pair.world.node.endpoints("web", Tcp, []);
    pair.settle();
    assert_eq!(pair.forwarded(), INBOUND);
    assert_eq!(pair.dial(of(pair.server.v4, 8080)).seen.listener, OUTBOUND);
}

#[test]
fn a_backend_of_two_services_has_two_masters() {
    let mut pair = Pair::new(Bypass::Both);
    pair.service("other", Bypass::Nobody, "10.96.0.11");
    pair.settle();
    let node = pair.world.node.reconciler.node().clone();
    let refused = plan(&pair.world.node.state, &node, |_, _| true).refused;
    let told: Vec<String> = refused.values().map(ToString::to_string).collect();
    assert_eq!(told, [format!("{}:8080 serves default/other as well, which does not ask for it", pair.server.v4)]);
    assert_eq!(pair.dial(at(VIP, 80)).seen.listener, OUTBOUND);
    pair.service("other", Bypass::Both, "10.96.0.11");
    pair.settle();
    assert_eq!(pair.dial(at("10.96.0.11", 80)).seen.listener, 8080);
}

#[test]
fn a_new_agent_finds_what_is_written() {
    let mut pair = Pair::new(Bypass::Both);
    pair.bypasses = Bypasses::open(&pair.world.node.options.pins).unwrap();
    let node_port =
        pair.world.node.reconciler.ports()[0].frontends().map(|(key, _)| key).find(|key| key.scope == Scope::Node);
    assert!(pair.bypasses.flags(&node_port.unwrap()).outbound);
    pair.service("web", Bypass::Nobody, VIP);
    pair.settle();
    assert_eq!((pair.dial(at(VIP, 80)).seen.listener, pair.forwarded()), (OUTBOUND, INBOUND));
}
