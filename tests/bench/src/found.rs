//! What a program has measured, in one line of JSON: the lab's tool `json` reads it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

#[derive(Default)]
pub struct Found {
    /// nanoseconds -> how many took so long
    latencies: BTreeMap<u128, u64>,
    requests: u64,
}

impl Found {
    /// In steps of 10 ns, finer than a clock is read.
    pub fn add(&mut self, took: Duration) {
        *self.latencies.entry(took.as_nanos() / 10 * 10).or_default() += 1;
        self.requests += 1;
    }

    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The line, of a measurement that took so long altogether.
    pub fn line(&self, whole: Duration) -> String {
        format!("{{\"requests\":{},\"seconds\":{:.6},\"latencies\":[{self}]}}", self.requests, whole.as_secs_f64())
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.latencies.iter().map(|(nanos, times)| format!("[{nanos},{times}]")).collect();
        f.write_str(&pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_there_once_with_its_number() {
        let mut found = Found::default();
        [12_345, 12_341, 99].into_iter().for_each(|nanos| found.add(Duration::from_nanos(nanos)));
        let line = found.line(Duration::from_millis(1500));
        assert_eq!(line, r#"{"requests":3,"seconds":1.500000,"latencies":[[90,1],[12340,2]]}"#);
    }
}
