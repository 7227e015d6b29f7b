//! Logs problems: each at once, and again at growing intervals while it lasts.

use sidestep_agent_api::Trouble;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Pause between the first and the second line about a place; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Shortest pause, also if the text changes: a server that fails in two ways by turns must not log a line each time.
const LEAST_PAUSE: Duration = Duration::from_secs(5);

/// What was last logged about each place.
#[derive(Default)]
pub struct Complaints(HashMap<String, Said>);

struct Said {
    what: String,
    at: Instant,
    pause: Duration,
}

impl Complaints {
    /// Whether it was logged.
    pub fn tell(&mut self, trouble: &Trouble) -> bool {
        let is_due = self.is_due(trouble, Instant::now());
        if is_due {
            tracing::warn!("{}: {}", trouble.place, trouble.what);
        }
        is_due
    }

    /// Whether to log this now. If so, it counts as logged.
    fn is_due(&mut self, trouble: &Trouble, now: Instant) -> bool {
        let Trouble { place, what, hides_objects } = trouble;
        let before = self.0.get(place);
        let pause = match before {
            None => FIRST_PAUSE,
            Some(said) if said.what == *what && now < said.at + said.pause => return false,
            Some(said) if said.what == *what => (said.pause * 2).min(LONGEST_PAUSE),
            // A file that was changed and is still wrong is reported at once: its author waits for the result.
            Some(said) if !hides_objects && now < said.at + LEAST_PAUSE => return false,
            Some(said) => said.pause,
        };
        self.0.insert(place.clone(), Said { what: what.clone(), at: now, pause });
        true
    }

    /// The problem with this place is over.
    pub fn end(&mut self, place: &str) {
        if self.0.remove(place).is_some() {
            tracing::info!("{place}: is well again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(what: &str, hides_objects: bool) -> Trouble {
        Trouble { place: "Services".into(), what: what.into(), hides_objects }
    }

    /// Seconds at which a problem that is reported twice a second is logged.
    fn said(seconds: u64, told: impl Fn(u64) -> Trouble) -> Vec<u64> {
        let (mut complaints, begin) = (Complaints::default(), Instant::now());
        let is_said = |half: &u64| complaints.is_due(&told(*half), begin + Duration::from_millis(500 * half));
        (0..2 * seconds).filter(is_said).map(|half| half / 2).collect()
    }

    #[test]
    fn what_lasts_is_said_at_growing_intervals() {
        assert_eq!(said(1000, |_| trouble("no", false)), [0, 60, 180, 420, 900]);
        let day = said(86_400, |_| trouble("no", false));
        assert!(day.len() < 32 && day.windows(2).all(|two| two[1] - two[0] <= 3600), "{day:?}");
    }

    #[test]
    fn two_troubles_in_turn_are_no_flood() {
        let in_turn = |half: u64| trouble(if half.is_multiple_of(2) { "no" } else { "never" }, false);
        assert!(said(60, in_turn).len() <= 13);
        // For a file, each is a new result.
        assert_eq!(said(3, |half| trouble(&half.to_string(), true)), [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn after_it_was_well_it_is_new() {
        let (mut complaints, now) = (Complaints::default(), Instant::now());
        assert!(complaints.is_due(&trouble("no", false), now));
        complaints.end("Services");
        assert!(complaints.is_due(&trouble("no", false), now));
    }
}
