//! What the controller of captured pods tells.

use sidestep_agent_api::Fill;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use std::sync::Arc;

/// What the controller tells.
pub enum Report {
    /// What became of these; None: not wanted any more.
    News(Vec<(Name, Option<CaptureStatus>)>, Figures),
    /// What was wanted when it began is done, or cannot be done for now.
    Settled,
}

/// What became of a captured pod.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureStatus {
    /// The cookie of its namespace, where that is known.
    pub netns: Option<u64>,
    /// By what its connections are captured; None: they are not.
    pub applied: Option<Arc<Capture>>,
    /// Whether its connections are judged by its policies.
    pub judged: bool,
    pub troubles: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub tables: Vec<Fill>,
    /// Captured namespaces that have ended.
    pub ended: u64,
    /// Namespaces whose connections are judged.
    pub judged: usize,
    /// None: this node is not armed. Else how many namespaces may talk.
    pub admitted: Option<usize>,
    /// What is wrong with policies, or with ways round proxies, beside what single pods say.
    pub trouble: Option<String>,
}
