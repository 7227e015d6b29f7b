//! What is asked for, and what is answered.

use hyper::StatusCode;

/// The content type of OpenMetrics, which Prometheus accepts, too.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/metrics`. Few are answered at a time, since an answer may be large.
    Metrics,
    /// `/healthz`: whether the process should go on.
    Alive,
    /// `/readyz`: whether it does all that it was asked for.
    Ready,
}

impl Page {
    pub(crate) fn at(path: &str) -> Option<Page> {
        match path {
            "/metrics" => Some(Page::Metrics),
            "/healthz" => Some(Page::Alive),
            "/readyz" => Some(Page::Ready),
            _ => None,
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Answer {
        Answer { status, kind: TEXT, text: text.into() }
    }

    /// Metrics, in the format of OpenMetrics.
    pub fn metrics(text: String) -> Answer {
        Answer { kind: OPEN_METRICS, ..Answer::new(StatusCode::OK, text) }
    }

    /// All is well: 200.
    pub fn well(text: impl Into<String>) -> Answer {
        Answer::new(StatusCode::OK, text)
    }

    /// It is not: 503, with the reason.
    pub fn unavailable(why: impl Into<String>) -> Answer {
        Answer::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// Whether it says that all is well.
    pub fn is_well(&self) -> bool {
        self.status == StatusCode::OK
    }
}

/// The answer of a call that may wait, in a thread of its own.
pub async fn apart(call: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    let broken = |_| Answer::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be put together\n");
    tokio::task::spawn_blocking(call).await.unwrap_or_else(broken)
}
