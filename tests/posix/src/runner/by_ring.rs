//! Number of bytes, sent plus received, that must go by ring in an upgraded run of each case.

use std::collections::BTreeMap;

use super::job::Outcome;
use super::modes::Mode;
use crate::case::{Case, Ring};

/// One case in each line: its name and its bytes.
const NOTED: &str = include_str!("../../by_ring.txt");
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/by_ring.txt");

/// For a case without an entry, which so fails.
const NOT_NOTED: u64 = u64::MAX;

pub fn least(case: &Case) -> u64 {
    noted().get(case.name).copied().unwrap_or(NOT_NOTED)
}

fn noted() -> BTreeMap<&'static str, u64> {
    let line = |line: &'static str| line.split_once(' ').and_then(|(name, bytes)| Some((name, bytes.parse().ok()?)));
    NOTED.lines().filter_map(line).collect()
}

/// Adds entries for cases that have none: nine tenths of the measured bytes. For a case that was below its entry, the number
/// depends on the machine: the entry becomes a quarter of the measured bytes.
pub fn note(outcomes: &[Outcome]) -> Result<(), String> {
    let mut noted = noted();
    for outcome in outcomes.iter().filter(|o| o.mode == Mode::Upgraded && o.case.ring == Ring::Must) {
        let shown = outcome.report.as_ref().map_or(0, |report| report.ring);
        match noted.get_mut(outcome.case.name) {
            Some(least) if shown < *least => *least = shown / 4,
            Some(_) => {}
            None => drop(noted.insert(outcome.case.name, shown - shown / 10)),
        }
    }
    let text: String = noted.iter().map(|(name, bytes)| format!("{name} {bytes}\n")).collect();
    std::fs::write(PATH, text).map_err(|e| format!("cannot write {PATH}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_that_must_go_by_ring_is_noted_and_nothing_else() {
        let must: Vec<_> = crate::cases::all().filter(|c| c.ring == Ring::Must).map(|c| c.name).collect();
        let noted = noted();
        assert_eq!(must.iter().filter(|name| !noted.contains_key(*name)).collect::<Vec<_>>(), Vec::<&&str>::new());
        assert_eq!(noted.keys().filter(|name| !must.contains(name)).collect::<Vec<_>>(), Vec::<&&str>::new());
        assert!(noted.values().all(|bytes| *bytes > 0));
    }
}
