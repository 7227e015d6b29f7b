//! Whether the request of a connection has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const NOTHING: u8 = 0;
const SOMETHING: u8 = 1;
const METRICS: u8 = 2;

/// Whether a connection's request has come: before that, a new connection may replace it.
#[derive(Clone, Debug, Default)]
pub struct Asked(Arc<AtomicU8>);

impl Asked {
    /// The request has come.
    pub fn note(&self) {
        self.0.store(SOMETHING, Ordering::Relaxed);
    }

    /// It is for metrics, whose answer is large: who reads it slowly is replaced if there is nobody else.
    pub(crate) fn note_metrics(&self) {
        self.0.store(METRICS, Ordering::Relaxed);
    }

    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NOTHING
    }

    pub(crate) fn is_for_metrics(&self) -> bool {
        self.0.load(Ordering::Relaxed) == METRICS
    }
}
