//! What is known and what is programmed: all that questions are answered from.

use crate::settings::Settings;
use sidestep_agent_api::{Reconcile, Source};
use sidestep_ebpf::plane::Maps;
use sidestep_ebpf::services;
use sidestep_mesh::reconcile::Reconciler;
use sidestep_mesh::state::State;

pub struct View {
    pub settings: Settings,
    /// Cookie of this node's own network namespace.
    pub netns: u64,
    pub state: State,
    pub reconciler: Reconciler,
    pub maps: Maps,
    pub source: Source,
    pub reconcile: Reconcile,
}

impl View {
    /// Whether connections are balanced, be it as an earlier agent has programmed it.
    pub fn is_attached(&self) -> bool {
        services::is_attached(&self.settings.pins, &self.settings.cgroup)
    }

    /// Everything that is meant to be in the tables is known and has been written, and nothing else is kept there.
    pub fn is_complete(&self) -> bool {
        self.source.listed && !self.source.troubles.iter().any(|trouble| trouble.hides_objects)
    }
}
