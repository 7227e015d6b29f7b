//! Times of repeated work and their percentiles.

use std::time::Duration;

/// Nanoseconds a unit of work took, one entry a unit.
pub struct Times {
    nanos: Vec<f64>,
}

impl Times {
    /// One entry a unit; there is at least one.
    pub fn of(each: &[Duration]) -> Times {
        let mut nanos: Vec<f64> = each.iter().map(|time| time.as_nanos() as f64).collect();
        nanos.sort_by(f64::total_cmp);
        Times { nanos }
    }

    /// The time of which `share` (0 to 1) of the batches stayed below.
    pub fn percentile(&self, share: f64) -> f64 {
        let last = self.nanos.len() - 1;
        self.nanos[(last as f64 * share).round() as usize]
    }

    pub fn mean(&self) -> f64 {
        self.nanos.iter().sum::<f64>() / self.nanos.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_values() {
        let times = Times { nanos: (0..=100).map(f64::from).collect() };
        assert_eq!(times.percentile(0.5), 50.0);
        assert_eq!(times.percentile(0.99), 99.0);
        assert_eq!(times.mean(), 50.0);
    }
}
