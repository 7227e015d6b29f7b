//! Limits how often all network namespaces are visited.

use std::time::{Duration, Instant};

/// Shortest pause between two visits. The pause is at least as long as the visit took, so that visits take at most half of one
/// processor's time, however many namespaces somebody creates.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Pace {
    next: Option<Instant>,
}

impl Pace {
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    pub fn done(&mut self, begun: Instant, ended: Instant) {
        self.next = Some(ended + PAUSE.max(ended.saturating_duration_since(begun)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_leave_time_for_others() {
        let begun = Instant::now();
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut pace = Pace::default();
        assert!(pace.is_due(begun));
        pace.done(begun, begun);
        assert!(!pace.is_due(begun) && pace.is_due(begun + PAUSE));
        pace.done(begun, after(5));
        assert!(!pace.is_due(after(9)) && pace.is_due(after(10)));
    }
}
