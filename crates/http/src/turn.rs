//! Whose turn it is to get metrics.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Answers with metrics in memory at a time: with 10,000 Services each has some megabytes.
const ANSWERS: usize = 4;
/// Connections that have such an answer, or wait for it, at a time: few of those that a server has.
const TICKETS: usize = 12;

/// Shared by all connections of a server.
#[derive(Clone, Debug)]
pub struct Turns {
    tickets: Arc<Semaphore>,
    answers: Arc<Semaphore>,
}

/// A connection's right to have a ticket, or an answer in memory, as long as it is held.
pub type Held = Vec<OwnedSemaphorePermit>;

impl Default for Turns {
    fn default() -> Turns {
        Turns { tickets: Arc::new(Semaphore::new(TICKETS)), answers: Arc::new(Semaphore::new(ANSWERS)) }
    }
}

impl Turns {
    /// None: too many wait already.
    pub fn queue(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.tickets).try_acquire_owned().ok()
    }

    /// Waits until the answer may be put together.
    pub async fn come(&self, ticket: OwnedSemaphorePermit) -> Held {
        let answer = Arc::clone(&self.answers).acquire_owned().await.ok();
        [ticket].into_iter().chain(answer).collect()
    }
}
