//! A node with labelled pods, and policies for them.

use crate::node::{Backend, Node, backend};
use crate::sockets::{Echo, echo};
use sidestep_ebpf::capture::pod_network;
use sidestep_ebpf::error::Result;
use sidestep_ebpf::netns;
use sidestep_ebpf::packets;
use sidestep_ebpf::policy::{Addresses, Policies};
use sidestep_mesh::object::{Key, Name};
use sidestep_mesh::policy::evaluate::Who;
use sidestep_mesh::policy::identity::{Identities, Identity};
use sidestep_mesh::policy::plan::{Plan, plan};
use sidestep_mesh::policy::rules::Policy;
use sidestep_mesh::state::Change;
use sidestep_mesh::yaml;
use sidestep_testkit::Pod;
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

/// Ports at which every pod serves, over TCP and UDP.
pub const PORTS: [u16; 2] = [8080, 8081];

pub struct World {
    // The first field, since servers must end before their namespaces do.
    servers: Vec<(Vec<Backend>, Vec<Echo>)>,
    pub pods: BTreeMap<Name, Pod>,
    pub policies: Policies,
    pub identities: Identities,
    pub node: Node,
}

impl World {
    pub fn new() -> World {
        World::on(Node::new())
    }

    pub fn on(node: Node) -> World {
        packets::install(&node.options).unwrap();
        let policies = Policies::open(&node.options.pins).unwrap();
        let identities = Identities::after(policies.last_identity());
        World { servers: Vec::new(), pods: BTreeMap::new(), policies, identities, node }
    }

    /// Adds a pod with servers. Without labels it stays unknown to the agent.
    pub fn pod(&mut self, namespace: &str, name: &str, labels: Option<&str>) -> Name {
        let pod = self.node.testbed.pod();
        pod.namespace.run(tell_of_every_refusal);
        self.servers.push((PORTS.map(|port| backend(&pod, port)).into(), PORTS.map(|port| echo(&pod, port)).into()));
        let name = Name::new(namespace, name);
        self.pods.insert(name.clone(), pod);
        if let Some(labels) = labels {
            self.label(&name, labels);
        }
        name
    }

    /// Adds pods of the namespace `shop`, each with its name as the label `app`.
    pub fn apps<const N: usize>(&mut self, names: [&str; N]) -> [Name; N] {
        names.map(|app| self.pod("shop", app, Some(&format!("{{app: {app}}}"))))
    }

    pub fn address(&self, name: &Name, v6: bool) -> IpAddr {
        if v6 { self.pods[name].v6 } else { self.pods[name].v4 }
    }

    /// Sets the pod's labels, such as `{app: web}`.
    pub fn label(&mut self, name: &Name, labels: &str) {
        let (v4, v6) = (self.address(name, false), self.address(name, true));
        self.tell(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {}, namespace: {}, labels: {labels}}}, spec: {{containers: \
             []}}, status: {{podIPs: [{{ip: {v4}}}, {{ip: '{v6}'}}]}}}}",
            name.name, name.namespace
        ));
    }

    /// Puts objects, given as a file's content.
    pub fn tell(&mut self, text: &str) {
        for object in yaml::parse(text).unwrap_or_else(|wrong| panic!("{wrong}:\n{text}")) {
            self.node.change(Change::Put(object));
        }
    }

    /// Puts a policy of the namespace `shop` with this `spec`.
    pub fn policy(&mut self, name: &str, spec: &str) {
        self.tell(&policy("shop", name, spec));
    }

    pub fn forget_policies(&mut self) {
        let names: Vec<Name> = self.node.state.policies().map(|policy| policy.name.clone()).collect();
        for name in names {
            self.node.change(Change::Delete(Key::Policy(name)));
        }
    }

    /// Writes all changes into the tables.
    pub fn settle(&mut self) {
        self.try_settle().unwrap();
    }

    /// As a new agent does: identities first.
    pub fn settle_anew(&mut self) {
        let Plan { identities, .. } = plan(&self.node.state, &mut self.identities, &[].into(), |_| true);
        self.policies.write_identities(&identities).unwrap();
        self.policies.use_identities().unwrap();
        self.settle();
    }

    pub fn try_settle(&mut self) -> Result<()> {
        let Plan { identities, pods } = plan(&self.node.state, &mut self.identities, &[].into(), |_| true);
        for (name, pod) in &self.pods {
            let path = pod.namespace.path();
            let cookie = netns::cookie_of(&path).unwrap();
            match pods.get(name) {
                Some(planned) => {
                    let addresses = Addresses::from(&pod_network::read(&path).unwrap());
                    self.policies.put(&path, cookie, &name.namespace, &addresses, &planned.compiled)?;
                }
                None => self.policies.remove(cookie)?,
            }
        }
        self.policies.write_identities(&identities).and(self.policies.use_identities())
    }

    /// The pod's identity.
    pub fn identity(&self, name: &Name) -> Option<Identity> {
        let pod = self.node.state.pods().remove(name)?;
        Some(Identity::new(&pod.name.namespace, &pod.labels))
    }

    /// The policies that select a pod.
    pub fn policies_of(&self, name: &Name) -> Vec<&Policy> {
        match self.node.state.pods().get(name) {
            Some(pod) => sidestep_mesh::policy::plan::policies_of(&self.node.state, pod).collect(),
            None => Vec::new(),
        }
    }

    /// The counts of these reasons.
    pub fn counted<const N: usize>(&self, reasons: [&str; N]) -> [u64; N] {
        reasons.map(|reason| self.node.reason(reason))
    }
}

pub fn who(identity: &Option<Identity>) -> Who<'_> {
    identity.as_ref().map_or(Who::Unknown, Who::Pod)
}

pub fn policy(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: sidestep.dev/v1, kind: Policy, metadata: {{name: {name}, namespace: {namespace}}}, spec: \
         {{{spec}}}}}\n"
    )
}

/// By default the kernel sends only a few ICMP errors a second.
fn tell_of_every_refusal() {
    for name in ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"] {
        fs::write(format!("/proc/sys/net/{name}"), "0").unwrap();
    }
    // Fails on kernels where this setting is not per namespace.
    let _ = fs::write("/proc/sys/net/ipv4/icmp_msgs_per_sec", "1000000");
}
