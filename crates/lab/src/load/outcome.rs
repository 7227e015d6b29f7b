//! The outcome of a load.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as Reader, Serializer as Writer, V2DeflateSerializer};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The outcome of one run of a load tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Requests with a good answer in time.
    pub requests: u64,
    /// Requests that were refused, cut off or late, or had a wrong status.
    pub errors: u64,
    /// Time from the first request to the last answer.
    pub seconds: f64,
    /// Payload in both directions, as the tool counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// None for tools that only transfer bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latencies>,
}

/// A histogram of latencies in nanoseconds, with three significant digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// Empty; it grows with the values.
    pub fn new() -> Latencies {
        Latencies(Histogram::new(3).expect("HdrHistogram supports three digits"))
    }

    /// Adds `times` requests that took so many nanoseconds.
    pub fn record(&mut self, nanoseconds: u64, times: u64) {
        self.0.record_n(nanoseconds.max(1), times).expect("the histogram grows by itself");
    }

    /// Adds `times` requests that took more than `from` and at most `to`. They are spread evenly, the last one at `to`, as far as
    /// three digits can tell them apart.
    pub fn record_between(&mut self, from: u64, to: u64, times: u64) {
        let (from, parts) = (from.min(to), times.min(64));
        let share = |whole: u64, part: u64| (u128::from(whole) * u128::from(part) / u128::from(parts)) as u64;
        for part in 1..=parts {
            self.record(from + share(to - from, part), share(times, part) - share(times, part - 1));
        }
    }

    /// Records all requests of the other histogram here as well.
    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("the histogram grows by itself");
    }

    /// How many requests were recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time in nanoseconds within which `percent` of the requests were answered.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.0.value_at_percentile(percent)
    }

    /// In nanoseconds; 0 if nothing was recorded.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// In nanoseconds, rounded up to three significant digits; 0 if nothing was recorded.
    pub fn max(&self) -> u64 {
        self.0.max()
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

/// HdrHistogram's own format (V2, deflated), in base64, which its implementations for other languages read, too.
impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Latencies, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(text).map_err(D::Error::custom)?;
        let histogram = Reader::new().deserialize(&mut bytes.as_slice()).map_err(D::Error::custom)?;
        Ok(Latencies(histogram))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_survive_their_way_through_json() {
        let mut before = Latencies::new();
        before.record(1_000, 5);
        before.record(3_000_000_000, 1);
        let text = serde_json::to_string(&before).expect("JSON");
        let after: Latencies = serde_json::from_str(&text).expect("what was written");
        assert_eq!((after.count(), after.percentile(50.0)), (6, 1_000));
        assert_eq!(after.max(), before.max());
    }
}
