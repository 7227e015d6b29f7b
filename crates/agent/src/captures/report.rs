//! What the controller of captured pods reports.

use sidestep_agent_api::Fill;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use std::sync::Arc;

/// A report of the controller.
pub enum Report {
    /// The status of these pods; None: not wanted any more.
    News(Vec<(Name, Option<CaptureStatus>)>, Figures),
    /// What was wanted at the beginning is done, or cannot be done for now.
    Settled,
}

/// The status of a captured pod.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureStatus {
    /// The cookie of its namespace, if known.
    pub netns: Option<u64>,
    /// The document by whose rules it is captured; None: it is not captured.
    pub applied: Option<Arc<Capture>>,
    /// Whether its policies are in force.
    pub enforced: bool,
    /// Whether all that the document and the policies say is in force: nothing of it has to be tried again.
    pub is_in_force: bool,
    pub troubles: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub tables: Vec<Fill>,
    /// Captured namespaces that have ended.
    pub ended: u64,
    /// Namespaces in which policies are in force.
    pub enforced: usize,
    /// None: this node is not armed. Else how many namespaces are admitted.
    pub admitted: Option<usize>,
    /// A problem of policies or bypasses that concerns the whole node.
    pub trouble: Option<String>,
}

/// Lines of the log about captured pods at a time; the rest is a number.
const LINES: usize = 10;

/// Logs what is wrong with captured pods.
pub fn log(news: &[(Name, Option<CaptureStatus>)]) {
    let troubled = news.iter().filter_map(|(name, status)| Some((name, status.as_ref()?)));
    let troubled: Vec<_> = troubled.filter(|(_, status)| !status.troubles.is_empty()).collect();
    for (name, status) in troubled.iter().take(LINES) {
        tracing::warn!("Capture {name}: {}", status.troubles.join("; "));
    }
    if troubled.len() > LINES {
        tracing::warn!("{} more captures have troubles: `sidestep capture list` names them", troubled.len() - LINES);
    }
}
