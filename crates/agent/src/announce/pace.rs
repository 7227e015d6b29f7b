//! How often Events are published: each kind on each object at growing intervals, and all together not faster than a bucket fills.

use super::{Reason, Subject};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Pause between the first and the second Event of a kind on an object; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Events at a time, whatever they are about.
const BURST: u32 = 25;
/// One more is permitted after so long.
const REFILL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Pace {
    /// {last Event, pause after it}
    last: HashMap<(Subject, Reason), (Instant, Duration)>,
    bucket: Option<Bucket>,
}

struct Bucket {
    left: u32,
    filled: Instant,
}

impl Pace {
    pub fn permits(&mut self, subject: &Subject, reason: Reason, now: Instant) -> bool {
        let key = (subject.clone(), reason);
        let pause = match self.last.get(&key) {
            Some((at, pause)) if now < *at + *pause => return false,
            Some((_, pause)) => (*pause * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        if !self.take(now) {
            return false;
        }
        // What has not happened for long is forgotten: pods come and go.
        self.last.retain(|_, (at, _)| now < *at + 2 * LONGEST_PAUSE);
        self.last.insert(key, (now, pause));
        true
    }

    fn take(&mut self, now: Instant) -> bool {
        let bucket = self.bucket.get_or_insert(Bucket { left: BURST, filled: now });
        let more = now.saturating_duration_since(bucket.filled).as_secs() / REFILL.as_secs();
        if more > 0 {
            bucket.left = bucket.left.saturating_add(u32::try_from(more).unwrap_or(BURST)).min(BURST);
            bucket.filled = now;
        }
        let is_left = bucket.left > 0;
        bucket.left -= u32::from(is_left);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_published_at_growing_intervals() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let at = |second: &u64| begin + Duration::from_secs(*second);
        let seconds: Vec<u64> =
            (0..1000).filter(|s| pace.permits(&Subject::Node, Reason::PolicyTrouble, at(s))).collect();
        assert_eq!(seconds, [0, 60, 180, 420, 900]);
        assert!(pace.permits(&Subject::Node, Reason::AddressConflict, begin));
    }

    #[test]
    fn many_objects_are_no_flood() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let pod =
            |n: u64| Subject::Pod { namespace: "shop".into(), name: n.to_string().into(), uid: None, container: None };
        let mut published = |from: u64, second: u64| {
            let now = begin + Duration::from_secs(second);
            (from..from + 1000).filter(|n| pace.permits(&pod(*n), Reason::CaptureTrouble, now)).count()
        };
        assert_eq!(published(0, 0), 25);
        assert_eq!(published(1000, 9), 0);
        assert_eq!(published(2000, 30), 3);
        assert_eq!(published(3000, 10_000), 25);
        assert!(pace.last.len() < 60, "{}", pace.last.len());
    }
}
