//! An errand at the API server that is run again and again, on a thread of its own, while the agent is ready.

use crate::cluster::ConnectError;
use crate::complaints::Complaints;
use crate::message::QueryHandle;
use sidestep_agent_api::{Refusal, Trouble};
use sidestep_error::chain;
use std::time::Duration;

/// The main thread answers within milliseconds, unless it is writing large tables.
const PATIENCE: Duration = Duration::from_secs(5);
/// An API server that does not answer in this time is asked again later.
const PATIENCE_FOR_SERVER: Duration = Duration::from_secs(20);

pub struct Errand<'a> {
    /// Names it in complaints and in the log.
    pub place: &'static str,
    pub queries: &'a QueryHandle,
    /// Pause after a success.
    pub pause: Duration,
    /// Pause after a failure, and while the agent is not ready.
    pub pause_after_failure: Duration,
}

/// Why it failed this time.
#[derive(Debug, thiserror::Error)]
pub enum ErrandError {
    #[error("cannot reach the API server")]
    Connect(#[from] ConnectError),
    #[error("the agent's account may not {request}: give its ClusterRole that verb")]
    Forbidden { request: &'static str, source: kube::Error },
    #[error("the API server does not {request}")]
    Request { request: &'static str, source: kube::Error },
    #[error("cannot tell which pods are captured: {0}")]
    Captures(Refusal),
    #[error("the API server did not answer in {PATIENCE_FOR_SERVER:?}")]
    Slow,
}

impl ErrandError {
    /// `request`: verb and resource, as a ClusterRole has them.
    pub fn of(request: &'static str) -> impl FnOnce(kube::Error) -> ErrandError {
        move |source| match &source {
            kube::Error::Api(status) if status.code == 403 => ErrandError::Forbidden { request, source },
            _ => ErrandError::Request { request, source },
        }
    }
}

impl Errand<'_> {
    /// For ever.
    pub fn run(&self, work: impl AsyncFnMut() -> Result<(), ErrandError>) {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.again_and_again(work)),
            Err(error) => tracing::warn!("no {}: {}", self.place, chain(&error)),
        }
    }

    async fn again_and_again(&self, mut work: impl AsyncFnMut() -> Result<(), ErrandError>) {
        let mut complaints = Complaints::default();
        loop {
            let pause = if !self.queries.health(PATIENCE).await.is_some_and(|health| health.is_ready()) {
                self.pause_after_failure
            } else {
                match tokio::time::timeout(PATIENCE_FOR_SERVER, work()).await.unwrap_or(Err(ErrandError::Slow)) {
                    Ok(()) => {
                        complaints.end(self.place);
                        self.pause
                    }
                    Err(error) => {
                        let what = chain(&error).to_string();
                        complaints.tell(&Trouble { place: self.place.into(), what, hides_objects: false });
                        self.pause_after_failure
                    }
                }
            };
            tokio::time::sleep(pause).await;
        }
    }
}
