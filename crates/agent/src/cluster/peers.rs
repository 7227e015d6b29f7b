//! Pods of other nodes: read only once something needs them.
//!
//! A Service asks for the bypass by an annotation, which may come at any time. Whether a pod on another node requires its proxy
//! decides whether the Service gets the bypass. So the first such Service makes the source read all pods from then on, and waits, as
//! one that does not ask, until they are known.

use super::news::{Item, PodScope, Step};
use sidestep_mesh::object::{Bypass, Key, Object};
use std::collections::BTreeMap;

/// Which pods are read, and what waits for those of other nodes.
pub struct Peers {
    /// None: no pods are read, and nothing waits for them.
    scope: Option<PodScope>,
    is_settled: bool,
    /// Services as they were reported, with what they ask for.
    waiting: BTreeMap<Key, Item>,
}

impl Peers {
    pub fn new(scope: Option<PodScope>) -> Peers {
        Peers { scope, is_settled: scope != Some(PodScope::OfNode), waiting: BTreeMap::new() }
    }

    pub fn scope(&self) -> Option<PodScope> {
        self.scope
    }

    /// What is to be made of this step of Services now.
    pub fn hold_back(&mut self, step: Step) -> Step {
        if self.is_settled {
            return step;
        }
        match step {
            Step::Begin => {
                self.waiting.clear();
                Step::Begin
            }
            Step::Listed(item) => Step::Listed(self.without_request(item)),
            Step::Put(item) => Step::Put(self.without_request(item)),
            Step::Gone(key) => {
                self.waiting.remove(&key);
                Step::Gone(key)
            }
            other => other,
        }
    }

    fn without_request(&mut self, item: Item) -> Item {
        self.waiting.remove(&item.key);
        let Ok(Some(Object::Service(service))) = &item.object else { return item };
        if service.bypass == Bypass::Nobody {
            return item;
        }
        let mut plain = service.clone();
        plain.bypass = Bypass::Nobody;
        let (key, assigned) = (item.key.clone(), item.assigned.clone());
        self.waiting.insert(item.key.clone(), item);
        Item { key, object: Ok(Some(Object::Service(plain))), assigned }
    }

    /// Whether the pods of other nodes are needed from now on, and have not been read so far.
    pub fn widen(&mut self) -> bool {
        let is_due = self.scope == Some(PodScope::OfNode) && !self.waiting.is_empty();
        if is_due {
            self.scope = Some(PodScope::All);
        }
        is_due
    }

    /// The server has said what it says of all pods: Services that have waited get what they ask for.
    pub fn settle(&mut self) -> impl Iterator<Item = Step> + use<> {
        self.is_settled |= self.scope == Some(PodScope::All);
        let ready = if self.is_settled { std::mem::take(&mut self.waiting) } else { BTreeMap::new() };
        ready.into_values().map(Step::Put)
    }
}
