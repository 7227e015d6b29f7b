//! Clients that wait until a pod's capture and policies are in force. There are as many as requests of the CNI plugin are
//! answered at a time.

use crate::message::{Wait, refused};
use crate::view::Pods;
use sidestep_agent_api::{Answer, Reply};
use sidestep_mesh::object::Name;
use std::time::Instant;

#[derive(Default)]
pub struct Waiting(Vec<Wait>);

/// Why the answer is no.
#[derive(Debug, thiserror::Error)]
enum WaitError {
    #[error("the agent has not attached its programs yet: it has just been started, or cannot read its sources")]
    NotAttached,
    #[error("{pod} is not captured, or not under its policies, in time: {}", why.join("; "))]
    NotInForce { pod: Name, why: Vec<String> },
}

impl Waiting {
    pub fn push(&mut self, wait: Wait) {
        self.0.push(wait);
    }

    /// When the first wait ends, whatever happens.
    pub fn due(&self) -> Option<Instant> {
        self.0.iter().map(|wait| wait.until).min()
    }

    /// Answers those whose pods are ready, and those whose time is over.
    pub fn settle(&mut self, pods: &Pods, is_attached: bool) {
        let now = Instant::now();
        self.0.retain(|wait| match outcome(wait, pods, is_attached, now) {
            Some(reply) => {
                // The client may have gone.
                let _ = wait.reply.send(reply);
                false
            }
            None => true,
        });
    }
}

/// Whether pods can be admitted.
pub fn ready(is_attached: bool) -> Reply {
    if is_attached { Ok(Answer::Done) } else { Err(refused(&WaitError::NotAttached)) }
}

/// None: not yet.
fn outcome(wait: &Wait, pods: &Pods, is_attached: bool, now: Instant) -> Option<Reply> {
    let status = pods.statuses.get(&wait.capture.name);
    let is_in_force =
        status.is_some_and(|status| status.is_in_force && status.applied.as_deref() == Some(&*wait.capture));
    if is_attached && is_in_force {
        return Some(Ok(Answer::Done));
    }
    if now < wait.until {
        return None;
    }
    if !is_attached {
        return Some(ready(false));
    }
    let mut why = status.map(|status| status.troubles.clone()).unwrap_or_default();
    if why.is_empty() {
        why.push("its document has not been read, or the agent is still writing its tables".into());
    }
    Some(Err(refused(&WaitError::NotInForce { pod: wait.capture.name.clone(), why })))
}
