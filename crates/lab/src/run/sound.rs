//! Whether the figures of a load count.

use super::error::TrialError;
use crate::load::Outcome;

/// The part of a load that must be observed for its costs to count.
const SEEN: f64 = 0.5;

/// An error if the figures do not count. `errors`: permitted part of failed requests; `seen`: seconds in which costs were measured.
pub fn sound(outcome: Outcome, errors: f64, seen: f64) -> Result<Outcome, TrialError> {
    let (failed, all) = (outcome.errors, outcome.errors + outcome.requests);
    if failed as f64 > errors * all as f64 {
        return Err(TrialError::Refused { errors: failed, all });
    }
    if seen < SEEN * outcome.seconds {
        return Err(TrialError::KeptFromMeasuring { seen, seconds: outcome.seconds });
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_of_which_too_little_was_seen_or_too_much_failed_does_not_count() {
        let outcome = |errors| Outcome { requests: 100, errors, seconds: 1.0, bytes: None, latency: None };
        assert!(sound(outcome(1), 0.01, 0.6).is_ok());
        assert!(sound(outcome(2), 0.01, 1.0).unwrap_err().to_string().contains("2 of 102 requests failed"));
        assert!(sound(outcome(0), 0.01, 0.4).unwrap_err().to_string().contains("it measured 0.400 s of 1.000 s"));
    }
}
