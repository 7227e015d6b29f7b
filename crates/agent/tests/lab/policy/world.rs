//! A node with three pods that have labels, and what becomes of their calls.

use crate::agent::{Node, Server, dial, server};
use crate::yaml;
use sidestep_testkit::Pod;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// `web` calls `db`, and so does `stranger`.
pub struct World {
    // First, since servers end before their namespaces do.
    pub _servers: Vec<Server>,
    pub web: Pod,
    pub db: Pod,
    pub stranger: Pod,
    pub node: Node,
}

/// From whom `db` takes what it gets.
pub const ONLY_WEB: &str = "select: {matchLabels: {app: db}}, ingress: [{action: allow, from: [{labels: {app: web}}]}]";

impl World {
    /// All pods are known, and nothing is said of them.
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

    /// In its file, and in force where a pod of this name is judged.
    pub fn policy(&mut self, name: &str, spec: &str, judged: &str) {
        self.node.file(&format!("policy-{name}.yaml"), &yaml::policy(name, spec));
        self.node.wait(|node| {
            let found = node.policies();
            let has = found.policies.iter().any(|policy| policy.name == name);
            has && found.pods.iter().any(|pod| pod.name == judged && pod.judged)
        });
    }

    pub fn forget(&mut self, name: &str) {
        std::fs::remove_file(self.node.services().join(format!("policy-{name}.yaml"))).unwrap();
        self.node.wait(|node| node.policies().policies.iter().all(|policy| policy.name != name));
        self.node.check(); // the keeper answers after it has done what it was told before
    }
}

/// Who answers, or why nobody does.
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
