//! A node with three labelled pods, and the outcomes of their calls.

use crate::agent::{Node, Server, dial, server};
use crate::yaml;
use sidestep_agent_api::Policy;
use sidestep_testkit::Pod;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// `web` and `stranger` call `db`.
pub struct World {
    // The first field, since servers must end before their namespaces do.
    pub _servers: Vec<Server>,
    pub web: Pod,
    pub db: Pod,
    pub stranger: Pod,
    pub node: Node,
}

/// A policy by which `db` accepts only `web`.
pub const ONLY_WEB: &str = "select: {matchLabels: {app: db}}, ingress: [{action: allow, from: [{labels: {app: web}}]}]";

impl World {
    /// All pods are known, and there are no policies.
    pub fn new() -> World {
        World::with(&[])
    }

    pub fn with(options: &[&str]) -> World {
        let mut node = Node::new();
        let [web, db, stranger] = [(); 3].map(|()| node.routed());
        for (name, pod) in [("web", &web), ("db", &db), ("stranger", &stranger)] {
            node.file(&format!("pod-{name}.yaml"), &yaml::labelled(name, pod, &format!("{{app: {name}}}")));
        }
        let services = node.services();
        node.start_with(&[&["--config", services.to_str().unwrap()], options].concat());
        World { _servers: vec![server(&db), server(&web)], web, db, stranger, node }
    }

    /// Writes the policy's file, and waits until it is in force for the pod `selected`.
    pub fn policy(&mut self, name: &str, spec: &str, enforced: &str) {
        let (file, text) = (format!("policy-{name}.yaml"), yaml::policy(name, spec));
        // If the file replaces another policy of this name, that one is in force until the file has been read.
        let replaces = std::fs::read_to_string(self.node.services().join(&file)).is_ok_and(|before| before != text);
        let before = if replaces { said(&self.node, name) } else { None };
        self.node.file(&file, &text);
        self.node.wait(|node| {
            let said = said(node, name);
            said.is_some()
                && said != before
                && node.policies().pods.iter().any(|pod| pod.name == enforced && pod.enforced)
        });
        self.node.check(); // the controller answers after it has processed earlier orders
    }

    pub fn forget(&mut self, name: &str) {
        std::fs::remove_file(self.node.services().join(format!("policy-{name}.yaml"))).unwrap();
        self.node.wait(|node| node.policies().policies.iter().all(|policy| policy.name != name));
        self.node.check(); // the controller answers after it has processed earlier orders
    }
}

/// The policy of this name, without the pods that it selects at the moment.
fn said(node: &Node, name: &str) -> Option<Policy> {
    let found = node.policies().policies.into_iter().find(|policy| policy.name == name);
    found.map(|policy| Policy { pods: Vec::new(), ..policy })
}

/// The server that answers, or the error.
pub fn call(from: &Pod, to: &Pod) -> io::Result<IpAddr> {
    let to = SocketAddr::new(to.v4, 8080);
    from.namespace.run(|| dial(to))
}

pub fn is_refused(from: &Pod, to: &Pod) -> bool {
    match call(from, to) {
        Ok(_) => false,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => true,
        Err(error) => panic!("{error}"),
    }
}
