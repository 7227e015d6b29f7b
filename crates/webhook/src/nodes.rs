//! Which nodes have the library. The kubelet would keep a pod waiting on a node that does not have it, perhaps for ever, so a pod gets
//! the library only if all nodes have it on which the pod may run.

use crate::node::Node;
use crate::pod::Pod;
use crate::selector::{cost, may_run_on};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

/// Comparisons of a pod's selectors, affinities and tolerations with nodes: a pod that would take more is not looked at, since anybody may
/// ask, and others wait meanwhile. 1,000 names of nodes among 5,000 nodes take 5 million.
const MOST_COMPARED: usize = 1 << 23;

/// All nodes of the cluster. Clones share them.
#[derive(Clone)]
pub struct Nodes {
    known: Arc<RwLock<Known>>,
    is_assumed: bool,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<String, Node>,
    /// Names of nodes on which a pod of the DaemonSet has installed the library. It stays there until Sidestep is removed. A node may
    /// be named here before it is known.
    with_library: HashSet<String>,
    /// All nodes have been read once.
    is_complete: bool,
    /// So have all pods of the DaemonSet.
    are_libraries_known: bool,
}

impl Nodes {
    /// Nothing is known yet.
    pub fn unknown() -> Nodes {
        Nodes { known: Arc::default(), is_assumed: false }
    }

    /// All of them have the library, whichever there are.
    pub fn assumed() -> Nodes {
        Nodes { known: Arc::default(), is_assumed: true }
    }

    /// Whether all nodes on which the pod may run have the library; not if there is none, since one may come that has not.
    pub fn all_have_library(&self, pod: &Pod) -> bool {
        if self.is_assumed {
            return true;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if cost(pod).saturating_mul(known.nodes.len()) > MOST_COMPARED {
            return false;
        }
        let mut possible = known.nodes.iter().filter(|(name, node)| may_run_on(pod, name, node)).peekable();
        known.is_complete && possible.peek().is_some() && possible.all(|(name, _)| known.with_library.contains(name))
    }

    /// Whether all nodes have been read once, and which of them have the library.
    pub fn are_known(&self) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        self.is_assumed || known.is_complete && known.are_libraries_known
    }

    /// How many there are, and how many of them have the library.
    pub fn counts(&self) -> [usize; 2] {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        [known.nodes.len(), known.nodes.keys().filter(|name| known.with_library.contains(*name)).count()]
    }

    /// A node is there, or has changed.
    pub fn add(&self, name: String, node: Node) {
        self.change(|known| _ = known.nodes.insert(name, node));
    }

    /// A node is gone. One that comes with its name is another.
    pub fn remove(&self, name: &str) {
        self.change(|known| {
            known.nodes.remove(name);
            known.with_library.remove(name);
        });
    }

    /// There are these nodes, and no others.
    pub fn complete(&self, names: &HashSet<String>) {
        self.change(|known| {
            known.nodes.retain(|name, _| names.contains(name));
            known.with_library.retain(|name| names.contains(name));
            known.is_complete = true;
        });
    }

    /// A node has the library.
    pub fn note_library(&self, node: String) {
        self.change(|known| _ = known.with_library.insert(node));
    }

    /// A node has it no more, or will not keep it.
    pub fn forget_library(&self, node: &str) {
        self.change(|known| _ = known.with_library.remove(node));
    }

    /// All nodes that have the library now have been noted.
    pub fn libraries_are_known(&self) {
        self.change(|known| known.are_libraries_known = true);
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_gets_the_library_only_if_every_node_for_it_has_it() {
        let pod = |selector| serde_json::from_value(json!({"spec": {"nodeSelector": selector}})).expect("a pod");
        let (any, amd, arm) = (pod(json!({})), pod(json!({"arch": "amd64"})), pod(json!({"arch": "arm64"})));
        let node = |arch: &str| Node { labels: [("arch".into(), arch.into())].into(), ..Node::default() };
        let nodes = Nodes::unknown();
        nodes.add("a".into(), node("amd64"));
        nodes.note_library("a".into());
        assert!(!nodes.all_have_library(&any) && !nodes.are_known(), "perhaps there are others");
        nodes.complete(&HashSet::from(["a".into()]));
        nodes.libraries_are_known();
        assert!(nodes.all_have_library(&any) && nodes.all_have_library(&amd) && nodes.are_known());
        assert!(!nodes.all_have_library(&arm), "a node for it may come");

        nodes.add("b".into(), node("arm64"));
        assert!(!nodes.all_have_library(&any) && nodes.all_have_library(&amd) && !nodes.all_have_library(&arm));
        assert_eq!(nodes.counts(), [2, 1]);
        nodes.remove("b");
        assert!(nodes.all_have_library(&any));

        nodes.remove("a");
        nodes.add("a".into(), node("amd64"));
        assert!(!nodes.all_have_library(&any), "another node of the name");
    }

    #[test]
    fn a_pod_that_would_take_long_to_compare_is_not_compared() {
        let nodes = Nodes::unknown();
        let names: HashSet<String> = (0..100).map(|number| format!("n{number}")).collect();
        for name in &names {
            nodes.add(name.clone(), Node::default());
            nodes.note_library(name.clone());
        }
        nodes.complete(&names);
        let after = |empty_terms: usize, values: Vec<String>| {
            let term = json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": values}]});
            let terms: Vec<_> = std::iter::repeat_n(json!({}), empty_terms).chain([term]).collect();
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}});
            serde_json::from_value(json!({"spec": {"affinity": affinity}})).expect("a pod")
        };
        let not_in = |values: usize| after(0, (0..values).map(|number| number.to_string()).collect());
        assert!(nodes.all_have_library(&not_in(1000)));
        assert!(!nodes.all_have_library(&not_in(MOST_COMPARED / 100)));
        assert!(nodes.all_have_library(&after(1000, vec!["a".into()])));
        assert!(!nodes.all_have_library(&after(MOST_COMPARED / 100 + 1, vec![])), "terms count");
        assert!(!nodes.all_have_library(&after(0, vec!["0".repeat(MOST_COMPARED)])), "so do long texts");
    }
}
