//! What is known and what is programmed: the basis of all answers.

use crate::captures::{CaptureStatus, Figures};
use crate::policing::Policing;
use crate::settings::Settings;
use sidestep_agent_api::{Reconcile, Source, Trouble};
use sidestep_ebpf::capture::Captures;
use sidestep_ebpf::plane::Maps;
use sidestep_ebpf::{external, services};
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use sidestep_mesh::reconcile::Reconciler;
use sidestep_mesh::state::State;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub struct View {
    pub settings: Settings,
    /// Cookie of this node's own network namespace.
    pub netns: u64,
    pub state: State,
    pub reconciler: Reconciler,
    pub maps: Maps,
    /// The source of Services is the first.
    pub sources: Vec<Source>,
    pub reconcile: Reconcile,
    pub pods: Pods,
    pub policing: Policing,
}

/// The status of captured pods.
pub struct Pods {
    pub statuses: BTreeMap<Name, CaptureStatus>,
    /// The rules of captured pods, by their namespaces' cookies.
    applied: HashMap<u64, Arc<Capture>>,
    pub figures: Figures,
    /// The tables, for reading.
    pub tables: Captures,
}

impl Pods {
    pub fn new(tables: Captures) -> Pods {
        Pods { statuses: BTreeMap::new(), applied: HashMap::new(), figures: Figures::default(), tables }
    }

    /// The document by whose rules connections in this namespace are captured.
    pub fn of(&self, netns: u64) -> Option<&Arc<Capture>> {
        self.applied.get(&netns)
    }

    /// The pod of this namespace: if several documents name it, the first one's.
    pub fn pod_of(&self, netns: u64) -> Option<&Name> {
        let by_capture = self.of(netns).map(|capture| &capture.name);
        by_capture.or_else(|| {
            let named = self.statuses.iter().find(|(_, status)| status.netns == Some(netns));
            named.map(|(name, _)| name)
        })
    }

    pub fn update(&mut self, name: Name, status: Option<CaptureStatus>) {
        let before = self.statuses.get(&name).and_then(|before| before.netns);
        if let Some(netns) = before.filter(|netns| self.of(*netns).is_some_and(|capture| capture.name == name)) {
            self.applied.remove(&netns);
        }
        let Some(status) = status else {
            self.statuses.remove(&name);
            return;
        };
        if let (Some(netns), Some(capture)) = (status.netns, &status.applied) {
            self.applied.insert(netns, Arc::clone(capture));
        }
        self.statuses.insert(name, status);
    }
}

impl View {
    /// Whether connections are balanced, perhaps still as an earlier agent has programmed it.
    pub fn is_attached(&self) -> bool {
        services::is_attached(&self.settings.pins, &self.settings.cgroup) && self.translates_packets()
    }

    /// Whether packets are translated, if they are to be.
    pub fn translates_packets(&self) -> bool {
        !self.settings.replace_kube_proxy || external::is_attached(&self.settings.pins)
    }

    /// Whether everything that can be read has been read.
    pub fn is_listed(&self) -> bool {
        self.sources.iter().all(|source| source.listed)
    }

    /// All sources as one.
    pub fn source(&self) -> Source {
        Source {
            name: self.sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>().join(" and "),
            listed: self.is_listed(),
            troubles: self.troubles().cloned().collect(),
        }
    }

    pub fn troubles(&self) -> impl Iterator<Item = &Trouble> {
        self.sources.iter().flat_map(|source| &source.troubles)
    }

    /// Whether everything that belongs in the tables of Services is known, and the source hides nothing: then what an earlier agent
    /// has left besides may be removed.
    pub fn is_complete(&self) -> bool {
        is_complete(&self.sources[0])
    }

    /// The sources of captured pods: that of Services, or those beside it.
    pub fn sources_of_captures(&self) -> &[Source] {
        match &self.sources[..] {
            [_, others @ ..] if !others.is_empty() => others,
            all => all,
        }
    }

    /// The same for captured pods.
    pub fn has_all_captures(&self) -> bool {
        self.sources_of_captures().iter().all(is_complete)
    }
}

fn is_complete(source: &Source) -> bool {
    source.listed && !source.troubles.iter().any(|trouble| trouble.hides_objects)
}
