//! All objects of the sources: Services, EndpointSlices and the Services that own them, pods (captured ones, too), and
//! policies.

use crate::capture::pod::Capture;
use crate::object::{Key, Name, Object, Service, Slice};
use crate::pod::{self, Namespace, Pod};
use crate::policy::rules::{Labels, Policy};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Knows nothing of this node: what the objects mean here is decided by [`table`](crate::table) and the plans.
#[derive(Debug, Default)]
pub struct State {
    services: HashMap<Name, Service>,
    slices: HashMap<Name, Slice>,
    /// Service -> its slices. A slice may come before its Service.
    slices_of: HashMap<Name, BTreeSet<Name>>,
    captures: HashMap<Name, Capture>,
    pods: HashMap<Name, Arc<Pod>>,
    namespaces: HashMap<Arc<str>, Namespace>,
    policies: BTreeMap<Name, Policy>,
    network_policies: BTreeMap<Name, Policy>,
    labels: SharedLabels,
}

/// Sets of labels that pods have: there are as many as kinds of pods.
#[derive(Debug, Default)]
struct SharedLabels {
    known: HashSet<Arc<Labels>>,
    /// As many as there were after the last look for sets that no pod has any more.
    kept: usize,
}

impl SharedLabels {
    /// An equal set that others have, too.
    fn share(&mut self, labels: Arc<Labels>) -> Arc<Labels> {
        if let Some(known) = self.known.get(&labels) {
            return Arc::clone(known);
        }
        if self.known.len() >= 2 * self.kept.max(64) {
            self.known.retain(|one| Arc::strong_count(one) > 1);
            self.kept = self.known.len();
        }
        self.known.insert(Arc::clone(&labels));
        labels
    }
}

/// A change that a source reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object is new, or has changed, or is reported again unchanged.
    Put(Object),
    /// An object that is not known is no error.
    Delete(Key),
    /// All objects: those that are not in the list are gone.
    All(Vec<Object>),
}

/// What a change may affect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Those whose ports must be programmed again; some may be gone.
    pub services: BTreeSet<Name>,
    /// Captured pods whose document is new, changed or gone.
    pub captures: BTreeSet<Name>,
    /// Policies, or the identities of addresses.
    pub policy: bool,
}

impl Concerned {
    fn service(name: Name) -> Concerned {
        Concerned { services: BTreeSet::from([name]), ..Concerned::default() }
    }

    fn capture(name: Name) -> Concerned {
        // A captured pod is a pod as well.
        Concerned { captures: BTreeSet::from([name]), policy: true, ..Concerned::default() }
    }

    fn policy() -> Concerned {
        Concerned { policy: true, ..Concerned::default() }
    }
}

impl Extend<Concerned> for Concerned {
    fn extend<I: IntoIterator<Item = Concerned>>(&mut self, others: I) {
        for other in others {
            self.services.extend(other.services);
            self.captures.extend(other.captures);
            self.policy |= other.policy;
        }
    }
}

impl FromIterator<Concerned> for Concerned {
    fn from_iter<I: IntoIterator<Item = Concerned>>(others: I) -> Concerned {
        let mut all = Concerned::default();
        all.extend(others);
        all
    }
}

impl State {
    /// Applies the change. Returns what it may affect.
    pub fn apply(&mut self, change: Change) -> Concerned {
        self.apply_of(change, |_| true)
    }

    /// As `apply`, for a source that is responsible only for the keys that `is_its` accepts: `All` means all of those.
    pub fn apply_of(&mut self, change: Change, is_its: impl Fn(&Key) -> bool) -> Concerned {
        match change {
            Change::Put(object) => self.put(object),
            Change::Delete(key) => self.delete(&key),
            Change::All(objects) => self.replace(objects, is_its),
        }
    }

    fn replace(&mut self, objects: Vec<Object>, is_its: impl Fn(&Key) -> bool) -> Concerned {
        let told: BTreeSet<Key> = objects.iter().map(Object::key).collect();
        let gone: Vec<Key> = self.keys().filter(|key| is_its(key) && !told.contains(key)).collect();
        let mut concerned: Concerned = gone.iter().map(|key| self.delete(key)).collect();
        concerned.extend(objects.into_iter().map(|object| self.put(object)));
        concerned
    }

    fn keys(&self) -> impl Iterator<Item = Key> {
        let services = self.services.keys().cloned().map(Key::Service);
        let slices = self.slices.keys().cloned().map(Key::Slice);
        let captures = self.captures.keys().cloned().map(Key::Capture);
        let pods = self.pods.keys().cloned().map(Key::Pod);
        let namespaces = self.namespaces.keys().cloned().map(Key::Namespace);
        let policies = self.policies.keys().cloned().map(Key::Policy);
        let network_policies = self.network_policies.keys().cloned().map(Key::NetworkPolicy);
        let policies = policies.chain(network_policies);
        services.chain(slices).chain(captures).chain(pods).chain(namespaces).chain(policies)
    }

    fn put(&mut self, object: Object) -> Concerned {
        match object {
            Object::Service(service) if self.services.get(&service.name) == Some(&service) => Concerned::default(),
            Object::Service(service) => {
                let name = service.name.clone();
                self.services.insert(name.clone(), service);
                Concerned::service(name)
            }
            Object::Slice(slice) if self.slices.get(&slice.name) == Some(&slice) => Concerned::default(),
            Object::Slice(slice) => {
                let mut concerned = self.delete(&Key::Slice(slice.name.clone()));
                let owner = owner(&slice);
                self.slices_of.entry(owner.clone()).or_default().insert(slice.name.clone());
                self.slices.insert(slice.name.clone(), slice);
                concerned.services.insert(owner);
                concerned
            }
            Object::Capture(capture) if self.captures.get(&capture.name) == Some(&*capture) => Concerned::default(),
            Object::Capture(capture) => {
                let name = capture.name.clone();
                self.captures.insert(name.clone(), *capture);
                Concerned::capture(name)
            }
            Object::Pod(mut pod) => {
                pod.labels = self.labels.share(pod.labels);
                let pod = Arc::new(pod);
                changed(self.pods.insert(pod.name.clone(), Arc::clone(&pod)), &pod)
            }
            Object::Namespace(one) => changed(self.namespaces.insert(one.name.clone(), one.clone()), &one),
            Object::Policy(policy) => changed(self.policies.insert(policy.name.clone(), policy.clone()), &policy),
            Object::NetworkPolicy(name, policy) => changed(self.network_policies.insert(name, policy.clone()), &policy),
        }
    }

    fn delete(&mut self, key: &Key) -> Concerned {
        let concerned = match key {
            Key::Service(name) => self.services.remove(name).map(|service| Concerned::service(service.name)),
            Key::Slice(name) => self.slices.remove(name).map(|slice| Concerned::service(self.disown(&slice))),
            Key::Capture(name) => self.captures.remove(name).map(|capture| Concerned::capture(capture.name)),
            Key::Pod(name) => self.pods.remove(name).map(|_| Concerned::policy()),
            Key::Namespace(name) => self.namespaces.remove(name).map(|_| Concerned::policy()),
            Key::Policy(name) => self.policies.remove(name).map(|_| Concerned::policy()),
            Key::NetworkPolicy(name) => self.network_policies.remove(name).map(|_| Concerned::policy()),
        };
        concerned.unwrap_or_default()
    }

    /// Removes the slice from its Service, and returns the Service's name.
    fn disown(&mut self, slice: &Slice) -> Name {
        let owner = owner(slice);
        if let Some(its) = self.slices_of.get_mut(&owner) {
            its.remove(&slice.name);
            if its.is_empty() {
                self.slices_of.remove(&owner);
            }
        }
        owner
    }

    /// None: it does not exist, though slices may name it.
    pub fn service(&self, name: &Name) -> Option<&Service> {
        self.services.get(name)
    }

    /// In no particular order.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// All Services that exist, or that a slice names.
    pub fn names(&self) -> BTreeSet<Name> {
        self.services.keys().chain(self.slices_of.keys()).cloned().collect()
    }

    /// The slices of a Service, in the order of their names.
    pub fn slices(&self, service: &Name) -> Vec<&Slice> {
        self.slices_of.get(service).into_iter().flatten().filter_map(|name| self.slices.get(name)).collect()
    }

    /// The document of kind Capture of this name.
    pub fn capture(&self, name: &Name) -> Option<&Capture> {
        self.captures.get(name)
    }

    /// In no particular order.
    pub fn captures(&self) -> impl Iterator<Item = &Capture> {
        self.captures.values()
    }

    /// All pods. A Capture document supplies the network namespace, and may require the proxy. If there is an object of the same pod
    /// too, everything else comes from that. An object of an earlier pod of the name says nothing of this one: its labels would
    /// put the new pod under the earlier one's policies.
    pub fn pods(&self) -> BTreeMap<Name, Arc<Pod>> {
        let known = self.pods.iter().map(|(name, pod)| (name.clone(), Arc::clone(pod)));
        let mut pods: BTreeMap<Name, Arc<Pod>> = known.collect();
        for captured in self.captures.values().map(pod::of_capture) {
            let both = self.pod(&captured.name).map(|pod| Pod {
                netns: captured.netns.clone(),
                requires_proxy: pod.requires_proxy || captured.requires_proxy,
                ..Pod::clone(pod)
            });
            pods.insert(captured.name.clone(), Arc::new(both.unwrap_or(captured)));
        }
        pods
    }

    /// The object of the pod with this name. None: no source has reported it yet, at most that of another pod than the one that the
    /// document of kind Capture is about.
    pub fn pod(&self, name: &Name) -> Option<&Pod> {
        let uid = self.capture(name).and_then(|capture| capture.uid.as_deref());
        self.pods.get(name).map(|pod| &**pod).filter(|pod| pod.is_of(uid))
    }

    /// None: no source has reported it, as with files that have none.
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.get(name)
    }

    /// In the order of their names, and then those of NetworkPolicies.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.values().chain(self.network_policies.values())
    }
}

fn changed<T: PartialEq>(before: Option<T>, now: &T) -> Concerned {
    if before.as_ref() == Some(now) { Concerned::default() } else { Concerned::policy() }
}

fn owner(slice: &Slice) -> Name {
    Name { namespace: slice.name.namespace.clone(), name: slice.service.clone() }
}
