//! Evidence that a load has really taken its variant's way.

use super::command::Cmd;
use super::error::{CheckError, EnvironmentError};
use super::process::run;
use super::sidestep::splice_pins;
use super::spec::{Spec, SpliceSpec};
use crate::context::RunContext;
use crate::error::AtPath;
use indexmap::IndexMap;
use serde::Deserialize;

const BY_RING: &str = "by ring";
const SPLICED: &str = "spliced";

/// way -> bytes since the set-up was started. Bytes by ring are those of processes that have ended, as the load does after each
/// trial.
pub fn moved(context: &RunContext, spec: &Spec) -> Result<IndexMap<String, u64>, EnvironmentError> {
    let mut moved = IndexMap::new();
    if spec.load_rings {
        let path = spec.place.report();
        let text = std::fs::read_to_string(&path).at("read", &path)?;
        moved.insert(BY_RING.to_string(), by_ring(&text));
    }
    for (number, splice) in spec.splices.iter().enumerate() {
        *moved.entry(way(spec, splice)).or_default() += spliced(context, spec, number)?;
    }
    Ok(moved)
}

/// The name of a splice's way. Each of several splices must be used, so the name includes the namespace.
fn way(spec: &Spec, splice: &SpliceSpec) -> String {
    match splice.namespace.as_deref().and_then(|name| name.strip_prefix(&format!("{}-", spec.place.prefix))) {
        Some(namespace) if spec.splices.len() > 1 => format!("{SPLICED} in {namespace}"),
        _ => SPLICED.into(),
    }
}

/// The check's error if a way carried no byte.
pub fn unused(ways: &[String], moved: &IndexMap<String, u64>) -> Option<CheckError> {
    let unused = ways.iter().find(|way| moved.get(way.as_str()).is_none_or(|bytes| *bytes == 0))?;
    let counted: Vec<String> = moved.iter().map(|(way, bytes)| format!("{way} {bytes}")).collect();
    let counted = if counted.is_empty() { "nothing was counted".into() } else { counted.join(", ") };
    Some(CheckError::NothingMoved { way: unused.clone(), counted })
}

#[derive(Deserialize)]
struct Line {
    ring_rx: u64,
    ring_tx: u64,
}

/// A line that is still being written is counted the next time.
fn by_ring(report: &str) -> u64 {
    let lines = report.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.map(|line| line.ring_rx + line.ring_tx).sum()
}

fn spliced(context: &RunContext, spec: &Spec, number: usize) -> Result<u64, EnvironmentError> {
    let pins = splice_pins(context, spec, number).display().to_string();
    let said =
        run(&Cmd::new("splice status", &[&context.sidestep()?, "splice", "status", "--json", "--pins", &pins]), None)?;
    let said: serde_json::Value = serde_json::from_str(&said).map_err(EnvironmentError::SpliceStatus)?;
    said["bytes"].as_u64().ok_or(EnvironmentError::NoBytes(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_no_byte_went_is_named() {
        let ways = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let moved = IndexMap::from([("spliced in client".to_string(), 9), ("spliced in server".to_string(), 0)]);
        assert!(unused(&ways(&["spliced in client"]), &moved).is_none());
        let why = "not a byte of the load went spliced in server (bytes: spliced in client 9, spliced in server 0)";
        assert_eq!(
            unused(&ways(&["spliced in client", "spliced in server"]), &moved)
                .map(|error| error.to_string())
                .as_deref(),
            Some(why)
        );
        let why = "not a byte of the load went by ring (bytes: nothing was counted)";
        assert_eq!(unused(&ways(&["by ring"]), &IndexMap::new()).map(|error| error.to_string()).as_deref(), Some(why));
    }

    #[test]
    fn lines_are_added_and_halves_are_not() {
        let report = "{\"ring_rx\":5,\"ring_tx\":7,\"exe\":\"a\"}\n{\"ring_rx\":1,\"ring_tx\":0}\n{\"ring_rx\":9,";
        assert_eq!(by_ring(report), 13);
    }
}
