//! The library's report of a run, and the check against the case's declaration.

use std::path::Path;

use serde_json::{Value, json};

use super::modes::Mode;
use crate::case::{Case, Ring};

/// The sums over all processes of a case.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How many have written a report.
    pub processes: u64,
    /// Bytes that were sent or received by ring.
    pub ring: u64,
    /// Bytes that were sent or received by the kernel.
    pub kernel: u64,
    /// How often a direction changed from ring to kernel.
    pub returned: u64,
    /// The reasons of each process, one object each.
    pub reasons: Vec<Value>,
}

impl Report {
    /// If there is no file, no process has written a report.
    pub fn read(path: &Path) -> Result<Report, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Report::parse(&text),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Report::default()),
            Err(e) => Err(format!("cannot read the report {}: {e}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Report, String> {
        let mut sum = Report::default();
        for line in text.lines() {
            let value: Value =
                serde_json::from_str(line).map_err(|e| format!("a line of the report is no JSON ({e}): {line}"))?;
            let field =
                |name: &str| value[name].as_u64().ok_or_else(|| format!("the report's '{name}' is missing: {line}"));
            sum.processes += 1;
            sum.ring += field("ring_rx")? + field("ring_tx")?;
            sum.kernel += field("kernel_rx")? + field("kernel_tx")?;
            sum.returned += field("returned")?;
            sum.reasons.push(value["reasons"].clone());
        }
        Ok(sum)
    }

    /// How the report contradicts what is expected, if it does. `ring`: whether bytes go by ring; `least`: how many must.
    pub fn complaint(&self, case: &Case, ring: Ring, mode: Mode, least: u64) -> Option<String> {
        match ring {
            Ring::NoConnection => None,
            // A library that had no memory or descriptor writes no report either.
            Ring::May(_) if self.processes == 0 => None,
            _ if self.processes == 0 => Some("no process wrote a report: was the library loaded?".into()),
            // Bytes that were returned before they were read count as kernel bytes, although they were in a ring.
            Ring::Must if self.ring < least && !(mode.flips() && self.returned > 0) => {
                Some(format!("{} bytes went by ring, at least {least} must ({self:?})", self.ring))
            }
            Ring::Never(why) if self.ring > 0 => {
                Some(format!("{} bytes went by ring though none should: {why}", self.ring))
            }
            _ if mode == Mode::Flip && case.bulk && self.returned == 0 => {
                Some(format!("no connection returned to the kernel ({self:?})"))
            }
            _ => case.reason.filter(|_| mode == Mode::Upgraded).and_then(|reason| self.without(reason)),
        }
    }

    /// A complaint if no process reported this reason.
    fn without(&self, reason: &str) -> Option<String> {
        let given = self.reasons.iter().any(|reasons| reasons[reason].as_u64().is_some_and(|count| count > 0));
        (!given).then(|| format!("no connection stayed on the kernel by reason {reason} ({self:?})"))
    }

    /// For the results file of `posix-run`.
    pub fn to_json(&self) -> Value {
        json!({
            "processes": self.processes, "ring": self.ring, "kernel": self.kernel,
            "returned": self.returned, "reasons": self.reasons,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::case;

    const LINE: &str = r#"{"pid":1,"exe":"x","seen":3,"upgraded":2,"returned":1,"ring_rx":10,"ring_tx":5,"kernel_rx":7,"kernel_tx":8,"reasons":{}}"#;

    #[test]
    fn sums_lines() {
        let report = Report::parse(&format!("{LINE}\n{LINE}\n")).expect("a report");
        assert_eq!((report.processes, report.ring, report.kernel, report.returned), (2, 30, 30, 2));
        assert!(Report::parse("{\"pid\":1}").unwrap_err().contains("ring_rx"));
        assert!(Report::parse("half a li").unwrap_err().contains("no JSON"));
    }

    #[test]
    fn a_reason_that_nobody_gave_is_missed() {
        let given = Report::parse(&LINE.replace("{}", r#"{"urgent":1}"#)).expect("a report");
        let silent = Report::parse(LINE).expect("a report");
        let case = case("x", || {}).reason("urgent");
        let complaint = |report: &Report, mode| report.complaint(&case, Ring::Must, mode, 1);
        assert_eq!(complaint(&given, Mode::Upgraded), None);
        assert!(complaint(&silent, Mode::Upgraded).unwrap().contains("urgent"));
        assert_eq!(complaint(&silent, Mode::Flip), None);
    }

    #[test]
    fn a_run_that_stayed_on_the_kernel_fails() {
        let case = case("x", || {}).bulk();
        let (may, never) = (Ring::May("why"), Ring::Never("why"));
        let complains = |report: &Report, ring, mode, least| report.complaint(&case, ring, mode, least).is_some();
        let kernel_only = Report { processes: 1, kernel: 9, ..Report::default() };
        assert!(complains(&kernel_only, Ring::Must, Mode::Upgraded, 1));
        assert!(!complains(&kernel_only, may, Mode::Upgraded, 1));
        assert!(complains(&Report::default(), never, Mode::Upgraded, 1));
        let ring = Report { processes: 1, ring: 5, ..Report::default() };
        assert!(!complains(&ring, Ring::Must, Mode::Upgraded, 1));
        assert!(complains(&ring, Ring::Must, Mode::Flip, 1));
        assert!(!complains(&ring, Ring::Must, Mode::HostsFlip, 0));
        assert!(complains(&ring, never, Mode::Upgraded, 1));
        assert!(complains(&ring, Ring::Must, Mode::Upgraded, 6));
    }
}
