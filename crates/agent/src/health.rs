//! Whether the agent lives, and whether it is ready: what the probes of a kubelet ask.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The main thread's answer.
pub struct Health {
    /// For how long the thread of captured pods has not answered.
    pub captures_silent: Duration,
    /// What must be so before the agent is ready, and whether it is.
    pub readiness: [(&'static str, bool); 4],
}

impl Health {
    pub fn is_ready(&self) -> bool {
        self.readiness.iter().all(|(_, is_so)| *is_so)
    }
}

/// Whether a thread answers, which may take long without harm: it is asked again only when it has answered.
#[derive(Clone, Default)]
pub struct Pulse(Arc<Mutex<Option<Instant>>>);

impl Pulse {
    /// Whether to ask the thread now.
    pub fn begin(&self) -> bool {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = asked.is_none();
        asked.get_or_insert_with(Instant::now);
        is_new
    }

    /// The thread has answered.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// How long ago the thread was asked, if it has not answered.
    pub fn silence(&self) -> Duration {
        let asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.map_or(Duration::ZERO, |asked| asked.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_asked_once_until_it_answers() {
        let pulse = Pulse::default();
        assert_eq!(pulse.silence(), Duration::ZERO);
        assert!(pulse.begin() && !pulse.begin() && !pulse.clone().begin());
        assert!(pulse.silence() > Duration::ZERO);
        pulse.beat();
        assert_eq!(pulse.silence(), Duration::ZERO);
        assert!(pulse.begin());
    }
}
