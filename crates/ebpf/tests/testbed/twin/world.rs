//! A random set of Services and endpoints.

use crate::numbers::Numbers;
use sidestep_testkit::Pod;
use std::fmt::Write;
use std::net::IpAddr;

/// On which every pod serves, over TCP and UDP.
pub const TARGETS: [u16; 2] = [8080, 8081];

/// One port of a Service, with everything that reaches it.
pub struct Port {
    pub name: String,
    pub udp: bool,
    pub number: u16,
    pub node_port: Option<u16>,
    pub target: u16,
}

pub struct Service {
    pub name: String,
    pub cluster: Vec<IpAddr>,
    pub external: Vec<IpAddr>,
    pub balancer: Vec<IpAddr>,
    pub ports: Vec<Port>,
    /// Addresses of pods, of both families; of some families there may be none.
    pub endpoints: Vec<IpAddr>,
}

pub struct World {
    pub services: Vec<Service>,
}

/// Services of one world; of these every kind comes up in a few worlds.
const SERVICES: usize = 4;

impl World {
    pub fn new(seed: u64, pods: &[Pod]) -> World {
        let mut numbers = Numbers::new(seed);
        World { services: (1..=SERVICES).map(|i| service(&mut numbers, seed, i, pods)).collect() }
    }

    /// As Kubernetes would tell it.
    pub fn yaml(&self) -> String {
        let mut text = String::new();
        for service in &self.services {
            writeln!(text, "{}---", service.yaml()).unwrap();
            for v6 in [false, true] {
                writeln!(text, "{}---", service.slice_yaml(v6)).unwrap();
            }
        }
        text
    }
}

fn service(numbers: &mut Numbers, seed: u64, i: usize, pods: &[Pod]) -> Service {
    let families = [&[false][..], &[true], &[false, true]][numbers.below(3)];
    let addresses = |v4: &str, v6: &str| -> Vec<IpAddr> {
        let of = |v6_wanted: &bool| {
            if *v6_wanted { format!("{v6}::{seed:x}{i:02x}") } else { format!("{v4}.{}", seed as usize * 10 + i) }
        };
        families.iter().map(|family| of(family).parse().unwrap()).collect()
    };
    // No endpoint at all now and then; the same pods for several Services often.
    let chosen = if numbers.once_in(4) { 0 } else { 1 + numbers.below(pods.len()) };
    let first = numbers.below(pods.len());
    let endpoints = (0..chosen).flat_map(|n| {
        let pod = &pods[(first + n) % pods.len()];
        families.iter().map(|v6| if *v6 { pod.v6 } else { pod.v4 }).collect::<Vec<_>>()
    });
    Service {
        name: format!("service-{i}"),
        cluster: addresses("10.96.0", "fd00:96"),
        external: if numbers.once_in(2) { addresses("192.0.2", "2001:db8") } else { Vec::new() },
        balancer: if numbers.once_in(2) { addresses("198.51.100", "2001:db8:0:0:1") } else { Vec::new() },
        endpoints: endpoints.collect(),
        ports: (0..1 + numbers.below(3))
            .map(|n| port(numbers, n, 30000 + (seed as usize * 100 + i * 10 + n) as u16))
            .collect(),
    }
}

/// Nothing that is dialled in one world is in another: packet rules remember for minutes what they did to a flow, and a
/// new socket may have the same port.
fn port(numbers: &mut Numbers, n: usize, node_port: u16) -> Port {
    Port {
        name: format!("port-{n}"),
        udp: numbers.once_in(2),
        number: 80 + n as u16,
        node_port: numbers.once_in(2).then_some(node_port),
        target: TARGETS[numbers.below(TARGETS.len())],
    }
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| format!("{:?}", item.to_string())).collect();
    format!("[{}]", items.join(", "))
}

impl Port {
    pub fn protocol(&self) -> &'static str {
        if self.udp { "UDP" } else { "TCP" }
    }
}

impl Service {
    /// All addresses but the node's.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.cluster.iter().chain(&self.external).chain(&self.balancer).copied()
    }

    /// The endpoints for an address of that family.
    pub fn endpoints_of(&self, v6: bool) -> Vec<IpAddr> {
        self.endpoints.iter().copied().filter(|ip| ip.is_ipv6() == v6).collect()
    }

    fn yaml(&self) -> String {
        let node_port = |port: &Port| port.node_port.map_or(String::new(), |number| format!(", nodePort: {number}"));
        let ports = self.ports.iter().map(|port| {
            format!("{{name: {}, protocol: {}, port: {}{}}}", port.name, port.protocol(), port.number, node_port(port))
        });
        let ingress = self.balancer.iter().map(|ip| format!("{{ip: {:?}}}", ip.to_string()));
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {}}}, spec: {{type: LoadBalancer, clusterIPs: {}, \
             externalIPs: {}, ports: [{}]}}, status: {{loadBalancer: {{ingress: [{}]}}}}}}\n",
            self.name,
            list(&self.cluster),
            list(&self.external),
            ports.collect::<Vec<_>>().join(", "),
            ingress.collect::<Vec<_>>().join(", "),
        )
    }

    fn slice_yaml(&self, v6: bool) -> String {
        let ports = self
            .ports
            .iter()
            .map(|port| format!("{{name: {}, protocol: {}, port: {}}}", port.name, port.protocol(), port.target));
        let endpoints = self.endpoints_of(v6).into_iter().map(|ip| format!("{{addresses: {}}}", list([ip])));
        let family = if v6 { 6 } else { 4 };
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv{family}, metadata: {{name: {}-{family}, \
             labels: {{kubernetes.io/service-name: {}}}}}, ports: [{}], endpoints: [{}]}}\n",
            self.name,
            self.name,
            ports.collect::<Vec<_>>().join(", "),
            endpoints.collect::<Vec<_>>().join(", "),
        )
    }
}
