//! Times of repeated work and their percentiles.

use std::time::{Duration, Instant};

/// Both ends get this long to settle (caches, socket buffers, a change of carrier) before
/// anything is measured.
pub const WARM_UP: Duration = Duration::from_millis(150);

/// Nanoseconds a unit of work took, one entry a batch.
pub struct Times {
    nanos: Vec<f64>,
    pub units: u64,
}

/// Repeats `work` for `WARM_UP` unmeasured and then for `length`. The clock is read once for
/// `batch` units, so that reading it does not weigh on work of a few hundred nanoseconds.
pub fn repeat<E>(length: Duration, batch: u32, mut work: impl FnMut() -> Result<(), E>) -> Result<Times, E> {
    let start = Instant::now();
    while start.elapsed() < WARM_UP {
        work()?;
    }
    let mut times = Times { nanos: Vec::new(), units: 0 };
    let start = Instant::now();
    let mut before = start;
    loop {
        for _ in 0..batch {
            work()?;
        }
        let now = Instant::now();
        times.nanos.push((now - before).as_nanos() as f64 / f64::from(batch));
        times.units += u64::from(batch);
        before = now;
        if now - start >= length {
            times.nanos.sort_by(f64::total_cmp);
            return Ok(times);
        }
    }
}

impl Times {
    /// One entry a unit; there is at least one.
    pub fn of(each: &[Duration]) -> Times {
        let mut nanos: Vec<f64> = each.iter().map(|time| time.as_nanos() as f64).collect();
        nanos.sort_by(f64::total_cmp);
        Times { nanos, units: each.len() as u64 }
    }

    /// The time of which `share` (0 to 1) of the batches stayed below.
    pub fn percentile(&self, share: f64) -> f64 {
        let last = self.nanos.len() - 1;
        self.nanos[(last as f64 * share).round() as usize]
    }

    pub fn mean(&self) -> f64 {
        self.nanos.iter().sum::<f64>() / self.nanos.len() as f64
    }

    /// The fields of a JSON object, in microseconds.
    pub fn json_us(&self) -> String {
        format!(
            "\"units\":{},\"mean_us\":{:.4},\"p50_us\":{:.4},\"p90_us\":{:.4},\"p99_us\":{:.4}",
            self.units,
            self.mean() / 1e3,
            self.percentile(0.5) / 1e3,
            self.percentile(0.9) / 1e3,
            self.percentile(0.99) / 1e3,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_values() {
        let times = Times { nanos: (0..=100).map(f64::from).collect(), units: 101 };
        assert_eq!(times.percentile(0.5), 50.0);
        assert_eq!(times.percentile(0.99), 99.0);
        assert_eq!(times.mean(), 50.0);
    }

    #[test]
    fn repeats_for_the_asked_length() {
        let start = Instant::now();
        let times = repeat::<()>(Duration::from_millis(20), 8, || Ok(())).unwrap();
        assert!(start.elapsed() >= WARM_UP + Duration::from_millis(20));
        assert!(times.units > 0 && times.units.is_multiple_of(8));
    }

    #[test]
    fn errors_end_it() {
        assert_eq!(repeat(Duration::ZERO, 1, || Err("gone")).err(), Some("gone"));
    }
}
