//! The objects that were reported of a cluster, so that objects that a new list lacks count as deleted; and its errors.

use super::Cluster;
use super::assigned::Assigned;
use super::enrolled::Enrolled;
use super::failure::Failure;
use super::news::{Item, News, PodScope, Step};
use super::peers::Peers;
use super::reduced::Reduced;
use crate::message::{EventSink, Gone, Update};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::watcher::{self, Event};
use sidestep_mesh::object::{Key, Object};
use sidestep_mesh::state::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A watch that fails does so again, and reports it, in less than this time. A watch that works may be silent for longer.
pub const QUIET: Duration = Duration::from_secs(60);
/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// What an operator is told besides the missing right.
const UNREADY: &str = "until then the agent is not ready, and policies that an earlier agent enforced stay as they are";

/// Kinds that are read only if policies, or rings, need them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Optional {
    Pods,
    Namespaces,
    NetworkPolicies,
}

impl Optional {
    /// What must have been heard of the kind before the server counts as read. NetworkPolicies that the server does not show cannot
    /// count as none: those that an earlier agent enforced would be removed. A refusal of the other kinds stops nothing.
    fn least(self) -> Heard {
        match self {
            Optional::Pods | Optional::Namespaces => Heard::Refusal,
            Optional::NetworkPolicies => Heard::List,
        }
    }
}

/// Everything that was reported, over all connections.
pub struct Known {
    services: Kind,
    slices: Kind,
    /// Those that are read.
    optional: Vec<(Optional, Kind)>,
    peers: Peers,
    enrolled: Option<Enrolled>,
    /// Namespaces of the NetworkPolicies that cannot be read, as they were told last.
    unread: BTreeSet<Arc<str>>,
    mine: Mine,
    is_told: bool,
}

impl Known {
    pub fn new(of: &Cluster) -> Known {
        let outage = Outage::of(&format!("Node {}", of.node_name));
        let optional = [
            (of.pods.is_some(), Optional::Pods, "Pods"),
            (of.asks_namespaces(), Optional::Namespaces, "Namespaces"),
            (of.asks_network_policies, Optional::NetworkPolicies, "NetworkPolicies"),
        ];
        // What is not asked for is known: there is none.
        let kind = |name| Kind { heard: if of.asks_services { Heard::Nothing } else { Heard::List }, ..Kind::of(name) };
        let read = optional.into_iter().filter(|(is_read, ..)| *is_read);
        Known {
            services: kind("Services"),
            slices: kind("EndpointSlices"),
            optional: read.map(|(_, which, name)| (which, Kind::of(name))).collect(),
            peers: Peers::new(of.pods),
            enrolled: of.rings_namespaces.clone().map(Enrolled::new),
            unread: BTreeSet::new(),
            mine: Mine { is_answered: !of.asks_zone, outage },
            is_told: false,
        }
    }

    pub fn end_quiet_outages(&mut self, sink: &EventSink) -> Result<(), Gone> {
        let optional = self.optional.iter_mut().map(|(_, kind)| kind);
        let kinds = [&mut self.services, &mut self.slices].into_iter().chain(optional).map(|kind| &mut kind.outage);
        kinds.chain([&mut self.mine.outage]).try_for_each(|outage| outage.end_if_quiet(sink))
    }

    pub fn handle(&mut self, news: News, sink: &EventSink) -> Result<(), Gone> {
        match news {
            News::Service(step) => self.services.handle(self.peers.hold_back(step), sink)?,
            News::Slice(step) => self.slices.handle(step, sink)?,
            News::Pod(step) => self.handle_pods(step, sink)?,
            News::Namespace(step) => {
                self.enrolled.iter_mut().for_each(|enrolled| enrolled.note(&step));
                self.handle_optional(Optional::Namespaces, step, sink)?;
            }
            News::NetworkPolicy(step) => self.handle_policies(step, sink)?,
            News::Node(event) => self.mine.handle(*event, sink)?,
        }
        let knows_others = self.optional.iter().all(|(which, kind)| kind.heard >= which.least());
        let knows_services = [&self.services, &self.slices].iter().all(|kind| kind.heard == Heard::List);
        let is_all = knows_services && knows_others && self.mine.is_answered;
        if is_all && !std::mem::replace(&mut self.is_told, is_all) {
            sink.tell(Update::Listed)?;
        }
        Ok(())
    }
}

impl Known {
    /// After each news, and after a while without any.
    pub fn write_enrolled(&mut self, sink: &EventSink) -> Result<(), Gone> {
        self.enrolled.as_mut().map_or(Ok(()), |enrolled| enrolled.write(sink))
    }

    /// Which pods are to be read.
    pub fn pods(&self) -> Option<PodScope> {
        self.peers.scope()
    }

    /// Whether everything is to be read again, with more pods: ask after each news. Until their list is complete, pods count as
    /// unread.
    pub fn needs_more_pods(&mut self) -> bool {
        let needs_more = self.peers.widen();
        if needs_more {
            let pods = self.optional.iter_mut().filter(|(which, _)| *which == Optional::Pods);
            pods.for_each(|(_, kind)| kind.heard = Heard::Nothing);
        }
        needs_more
    }

    fn handle_pods(&mut self, step: Step, sink: &EventSink) -> Result<(), Gone> {
        self.handle_optional(Optional::Pods, step, sink)?;
        let is_pods = |(which, kind): &(Optional, Kind)| *which == Optional::Pods && kind.heard >= which.least();
        if !self.optional.iter().any(is_pods) {
            return Ok(());
        }
        self.peers.settle().try_for_each(|step| self.services.handle(step, sink))
    }

    fn handle_optional(&mut self, which: Optional, step: Step, sink: &EventSink) -> Result<(), Gone> {
        let found = self.optional.iter_mut().find(|(one, _)| *one == which);
        found.map_or(Ok(()), |(_, kind)| kind.handle(step, sink))
    }

    /// Says which policies cannot be read before the server counts as read: what an earlier agent enforced there must stay.
    fn handle_policies(&mut self, step: Step, sink: &EventSink) -> Result<(), Gone> {
        // A list may have thousands of objects: they are looked through once, at its end.
        let is_within_list = matches!(step, Step::Begin | Step::Listed(_));
        let step = match step {
            Step::Refused(why) => Step::Refused(format!("{why}; {UNREADY}")),
            other => other,
        };
        self.handle_optional(Optional::NetworkPolicies, step, sink)?;
        if is_within_list {
            return Ok(());
        }
        let policies = self.optional.iter().find(|(which, _)| *which == Optional::NetworkPolicies);
        let unread = policies.map(|(_, kind)| kind.unread()).unwrap_or_default();
        if unread == self.unread {
            return Ok(());
        }
        self.unread.clone_from(&unread);
        sink.tell(Update::UnreadPolicies(unread))
    }
}

fn zone(node: &Reduced<Node>) -> Option<Arc<str>> {
    node.labels().get(ZONE).map(|zone| zone.as_str().into())
}

/// An error of a watch. The watch may recover without an event.
struct Outage {
    place: String,
    last: Option<Instant>,
}

impl Outage {
    fn of(place: &str) -> Outage {
        Outage { place: place.into(), last: None }
    }

    fn fail(&mut self, why: impl ToString, sink: &EventSink) -> Result<(), Gone> {
        self.last = Some(Instant::now());
        sink.outage(&self.place, why)
    }

    fn end(&mut self, sink: &EventSink) -> Result<(), Gone> {
        self.last.take().map_or(Ok(()), |_| sink.well(&self.place))
    }

    fn end_if_quiet(&mut self, sink: &EventSink) -> Result<(), Gone> {
        if self.last.is_some_and(|last| last.elapsed() >= QUIET) { self.end(sink) } else { Ok(()) }
    }
}

/// This node's own Node object.
struct Mine {
    /// The server has reported the zone, that there is no such Node, or an error: in any case hints are used as far as possible.
    is_answered: bool,
    outage: Outage,
}

impl Mine {
    fn handle(&mut self, event: watcher::Result<Event<Reduced<Node>>>, sink: &EventSink) -> Result<(), Gone> {
        match event {
            // Init only means that a list was requested.
            Ok(Event::Init) => Ok(()),
            Ok(event) => {
                self.outage.end(sink)?;
                self.answered(event, sink)
            }
            Err(error) => {
                self.is_answered = true;
                self.outage.fail(Failure::new::<Node>(&error).text, sink)
            }
        }
    }

    /// A deleted Node keeps its zone: the machine is still where it was.
    fn answered(&mut self, event: Event<Reduced<Node>>, sink: &EventSink) -> Result<(), Gone> {
        self.is_answered = true;
        match event {
            Event::Apply(node) | Event::InitApply(node) => sink.tell(Update::Zone(zone(&node))),
            Event::Init | Event::InitDone | Event::Delete(_) => Ok(()),
        }
    }
}

/// One kind of objects: the keys that were reported, those of invalid objects, and the keys in a list that is being read.
struct Kind {
    /// With what its Service had then.
    told: BTreeMap<Key, Option<Box<Assigned>>>,
    invalid: BTreeSet<Key>,
    /// Those of pods and namespaces with an annotation that cannot be read, and has been logged.
    misread: BTreeSet<Key>,
    listed: BTreeSet<Key>,
    heard: Heard,
    outage: Outage,
}

/// The most that the server has ever said about a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Heard {
    Nothing,
    /// The server does not permit reading them: they count as none, if that is [enough](Optional::least).
    Refusal,
    List,
}

impl Kind {
    fn of(name: &str) -> Kind {
        let (told, invalid, listed) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Kind { told, invalid, misread: BTreeSet::new(), listed, heard: Heard::Nothing, outage: Outage::of(name) }
    }

    fn handle(&mut self, step: Step, sink: &EventSink) -> Result<(), Gone> {
        // Begin only means that a list was requested.
        if !matches!(step, Step::Begin | Step::Failed(_) | Step::Refused(_)) {
            self.outage.end(sink)?;
        }
        match step {
            Step::Begin => {
                self.listed.clear();
                Ok(())
            }
            Step::Listed(known) => {
                self.listed.insert(known.key.clone());
                self.put(known, sink)
            }
            Step::End => {
                let known = self.told.keys().chain(&self.invalid);
                let gone: BTreeSet<Key> = known.filter(|key| !self.listed.contains(*key)).cloned().collect();
                self.listed.clear();
                gone.into_iter().try_for_each(|key| self.delete(key, sink))?;
                self.heard = Heard::List;
                Ok(())
            }
            Step::Put(known) => self.put(known, sink),
            Step::Gone(key) => self.delete(key, sink),
            Step::Failed(why) => self.outage.fail(why, sink),
            Step::Refused(why) => {
                self.heard = self.heard.max(Heard::Refusal);
                self.outage.fail(why, sink)
            }
        }
    }

    /// An invalid object stays what it was before, as long as it has what it had. Well is reported after the change: what an earlier
    /// agent has left besides is removed as soon as nothing is hidden.
    fn put(&mut self, known: Item, sink: &EventSink) -> Result<(), Gone> {
        match known.object {
            Ok(object) => {
                let Some(object) = object else { return self.delete(known.key, sink) };
                self.invalid.remove(&known.key);
                self.remark(&known.key, &object);
                self.told.insert(known.key.clone(), known.assigned);
                sink.change(Change::Put(object))?;
                sink.well(&known.key)
            }
            Err(invalid) => {
                if !self.may_stay(&known.key, known.assigned.as_deref()) {
                    self.withdraw(&known.key, sink)?;
                }
                self.invalid.insert(known.key.clone());
                sink.trouble(&known.key, invalid)
            }
        }
    }

    /// Namespaces of invalid NetworkPolicies without an earlier content that is in force instead.
    fn unread(&self) -> BTreeSet<Arc<str>> {
        let without_content = self.invalid.iter().filter(|key| !self.told.contains_key(*key));
        let unread = without_content.filter_map(|key| match key {
            Key::NetworkPolicy(name) => Some(Arc::clone(&name.namespace)),
            _ => None,
        });
        unread.collect()
    }

    /// Otherwise an address that the API server gives to another Service would still lead to this one's backends.
    fn may_stay(&self, key: &Key, now: Option<&Assigned>) -> bool {
        let before = self.told.get(key).and_then(Option::as_deref);
        before.is_none_or(|before| now.is_some_and(|now| now.includes(before)))
    }

    /// Logs once what is wrong with an object that is in force all the same: annotations are texts of tenants, and no problem of the
    /// node.
    fn remark(&mut self, key: &Key, object: &Object) {
        let misread = match object {
            Object::Pod(pod) => pod.misread.as_deref(),
            Object::Namespace(namespace) => namespace.misread.as_deref(),
            _ => None,
        };
        let Some(what) = misread else {
            self.misread.remove(key);
            return;
        };
        if self.misread.insert(key.clone()) {
            tracing::warn!("{key}: {what}: it counts as true");
        }
    }

    /// Nothing of the object is in force any more.
    fn withdraw(&mut self, key: &Key, sink: &EventSink) -> Result<(), Gone> {
        self.told.remove(key).map_or(Ok(()), |_| sink.change(Change::Delete(key.clone())))
    }

    fn delete(&mut self, key: Key, sink: &EventSink) -> Result<(), Gone> {
        self.invalid.remove(&key);
        self.misread.remove(&key);
        self.withdraw(&key, sink)?;
        sink.well(&key)
    }
}

#[cfg(test)]
mod tests;
