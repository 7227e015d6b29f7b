//! What is known and what is programmed: all that questions are answered from.

use crate::settings::Settings;
use sidestep_agent_api::{Reconcile, Source};
use sidestep_ebpf::plane::Maps;
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
    pub attached: bool,
}
