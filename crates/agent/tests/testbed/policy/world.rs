//! A node with three pods that have labels, and what becomes of their calls.

use crate::agent::{Node, Server, dial, server};
use crate::yaml;
use sidestep_agent_api::Policy;
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
        let (file, text) = (format!("policy-{name}.yaml"), yaml::policy(name, spec));
        // One by this name that said something else is in force until the file has been read again.
        let replaces = std::fs::read_to_string(self.node.services().join(&file)).is_ok_and(|before| before != text);
        let before = if replaces { said(&self.node, name) } else { None };
        self.node.file(&file, &text);
        self.node.wait(|node| {
            let said = said(node, name);
            said.is_some() && said != before && node.policies().pods.iter().any(|pod| pod.name == judged && pod.judged)
        });
        self.node.check(); // the controller answers after it has done what it was told before
    }

    pub fn forget(&mut self, name: &str) {
        std::fs::remove_file(self.node.services().join(format!("policy-{name}.yaml"))).unwrap();
        self.node.wait(|node| node.policies().policies.iter().all(|policy| policy.name != name));
        self.node.check(); // the controller answers after it has done what it was told before
    }
}

/// The policy of this name, without whom it selects at the moment.
fn said(node: &Node, name: &str) -> Option<Policy> {
    let found = node.policies().policies.into_iter().find(|policy| policy.name == name);
    found.map(|policy| Policy { pods: Vec::new(), ..policy })
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
