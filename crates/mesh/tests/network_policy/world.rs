//! A cluster of nine pods, and who reaches whom by the model and by the tables, which must agree.

use sidestep_mesh::address::{Address, Protocol};
use sidestep_mesh::object::Name;
use sidestep_mesh::pod::Pod;
use sidestep_mesh::policy::evaluate::{Connection, Outcome, Who, evaluate};
use sidestep_mesh::policy::identity::{self, Identities};
use sidestep_mesh::policy::plan::{Plan, plan, policies_of};
use sidestep_mesh::policy::rules::Direction;
use sidestep_mesh::policy::tables::{Compiled, Gate, ISOLATED, SAYS_ALLOW, SAYS_DENY};
use sidestep_mesh::state::{Change, State};
use sidestep_mesh::yaml;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

pub const NAMESPACES: [&str; 3] = ["x", "y", "z"];
pub const PODS: [&str; 3] = ["a", "b", "c"];
pub const NODE: &str = "192.0.2.9";

/// An end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Pod(Name),
    Node,
    Outside(IpAddr),
}

/// The address of a pod: 10.0.1.1 for `x/a`.
pub fn address(namespace: &str, pod: &str) -> IpAddr {
    let place = |all: &[&str], one: &str| all.iter().position(|known| *known == one).expect("it is one of them") + 1;
    format!("10.0.{}.{}", place(&NAMESPACES, namespace), place(&PODS, pod)).parse().unwrap()
}

/// As the upstream suite labels and names them, but for `team`, `tier` and the ports `web` and `dns`.
pub fn cluster() -> String {
    let mut text = String::new();
    for (namespace, team) in NAMESPACES.iter().zip([", team: red", ", team: blue", ""]) {
        writeln!(
            text,
            "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}, labels: {{ns: {namespace}{team}}}}}}}"
        )
        .unwrap();
        for (pod, tier) in PODS.iter().zip([", tier: front", ", tier: back", ""]) {
            text += &self::pod(namespace, pod, &format!("pod: {pod}{tier}"));
        }
    }
    // It uses the node's network: policies neither select it nor name it.
    writeln!(
        text,
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: host, namespace: x, labels: {{pod: b}}}}, \
         spec: {{hostNetwork: true, containers: []}}, status: {{podIPs: [{{ip: {NODE}}}]}}}}"
    )
    .unwrap();
    text
}

/// The document of one of the pods with these labels.
pub fn pod(namespace: &str, pod: &str, labels: &str) -> String {
    let web = match pod {
        "a" => ", {name: web, containerPort: 80}",
        "b" => ", {name: web, containerPort: 81}",
        _ => "",
    };
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {pod}, namespace: {namespace}, labels: {{{labels}, \
         statefulset.kubernetes.io/pod-name: {pod}}}}}, spec: {{containers: [{{name: c, ports: [\
         {{name: serve-80-tcp, containerPort: 80}}, {{name: serve-81-tcp, containerPort: 81}}, \
         {{name: dns, containerPort: 80, protocol: UDP}}{web}]}}]}}, \
         status: {{podIPs: [{{ip: {}}}]}}}}\n",
        address(namespace, pod)
    )
}

pub struct World {
    state: State,
    pods: BTreeMap<Name, Arc<Pod>>,
    known: Identities,
    plan: Plan,
}

impl World {
    /// `text`: documents besides those of the cluster.
    pub fn new(text: &str) -> World {
        let mut state = State::default();
        for object in yaml::parse(&cluster()).unwrap().into_iter().chain(yaml::parse(text).expect(text)) {
            state.apply(Change::Put(object));
        }
        let mut known = Identities::default();
        let plan = plan(&state, &mut known, &[NODE.parse().unwrap()].into(), |pod| !pod.addresses.is_empty());
        World { pods: state.pods(), state, known, plan }
    }

    /// Whether both ends let the connection through.
    pub fn passes(&self, client: &End, server: &End, protocol: Protocol, port: u16) -> bool {
        let one = |end: &End, peer: &End, direction| match end {
            End::Pod(name) => self.is_allowed(&self.pods[name], peer, direction, protocol, port),
            _ => true,
        };
        one(client, server, Direction::Egress) && one(server, client, Direction::Ingress)
    }

    fn is_allowed(&self, pod: &Pod, peer: &End, direction: Direction, protocol: Protocol, port: u16) -> bool {
        let address = self.address(peer);
        let number = self.plan.identities.get(&Address::from(address)).map_or(identity::UNKNOWN, |it| it.identity);
        let who = match (number, self.known.name(number)) {
            (identity::NODE, _) => Who::Node,
            (_, Some(identity)) => Who::Pod(identity),
            _ => Who::Unknown,
        };
        let policies: Vec<_> = policies_of(&self.state, pod).collect();
        let protocol = Some(protocol);
        let connection = Connection { direction, peer: address, who, protocol, port, own_ports: &pod.ports };
        let modelled = evaluate(&policies, &connection).outcome == Outcome::Allowed;
        let planned = self.plan.pods.get(&pod.name);
        let looked_up =
            planned.is_none_or(|it| allows(&it.compiled, Gate { direction, protocol, port }, number, address));
        assert_eq!(looked_up, modelled, "{direction} of {}: {connection:?}\n{policies:#?}", pod.name);
        modelled
    }

    fn address(&self, end: &End) -> IpAddr {
        match end {
            End::Pod(name) => *self.pods[name].addresses.first().expect("the pod has an address"),
            End::Node => NODE.parse().unwrap(),
            End::Outside(address) => *address,
        }
    }
}

/// How the programs use the entries, where no rule denies and nothing is a dry run.
fn allows(compiled: &Compiled, gate: Gate, identity: u32, peer: IpAddr) -> bool {
    let defaults = *compiled.defaults.at(gate.direction);
    let is_exempt = gate.direction == Direction::Ingress && identity == identity::NODE;
    defaults & u16::from(ISOLATED) == 0
        || is_exempt
        || compiled.said(gate, identity, peer) & SAYS_ALLOW != 0
        || defaults & u16::from(SAYS_DENY) == 0
}
