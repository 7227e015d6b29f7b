//! What shows that a load has really taken its variant's way.

use super::command::Cmd;
use super::error::WorldError;
use super::process::run;
use super::sidestep::splice_pins;
use super::spec::Spec;
use crate::error::AtPath;
use crate::ground::Ground;
use indexmap::IndexMap;
use serde::Deserialize;

const BY_RING: &str = "by ring";
const SPLICED: &str = "spliced";

/// way -> bytes since the set-up stands. By ring: those of processes that have ended, as the load does after each turn.
pub fn moved(ground: &Ground, spec: &Spec) -> Result<IndexMap<String, u64>, WorldError> {
    let mut moved = IndexMap::new();
    if spec.load_rings {
        let path = spec.place.report();
        let text = std::fs::read_to_string(&path).at("read", &path)?;
        moved.insert(BY_RING.to_string(), by_ring(&text));
    }
    if !spec.splices.is_empty() {
        let each: Result<Vec<u64>, WorldError> =
            (0..spec.splices.len()).map(|number| spliced(ground, spec, number)).collect();
        moved.insert(SPLICED.to_string(), each?.iter().sum());
    }
    Ok(moved)
}

#[derive(Deserialize)]
struct Line {
    ring_rx: u64,
    ring_tx: u64,
}

/// A line that is being written just now counts the next time.
fn by_ring(report: &str) -> u64 {
    let lines = report.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.map(|line| line.ring_rx + line.ring_tx).sum()
}

fn spliced(ground: &Ground, spec: &Spec, number: usize) -> Result<u64, WorldError> {
    let pins = splice_pins(ground, spec, number).display().to_string();
    let said =
        run(&Cmd::new("splice status", &[&ground.sidestep()?, "splice", "status", "--json", "--pins", &pins]), None)?;
    let said: serde_json::Value = serde_json::from_str(&said).map_err(WorldError::SpliceStatus)?;
    said["bytes"].as_u64().ok_or(WorldError::NoBytes(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_and_halves_are_not() {
        let report = "{\"ring_rx\":5,\"ring_tx\":7,\"exe\":\"a\"}\n{\"ring_rx\":1,\"ring_tx\":0}\n{\"ring_rx\":9,";
        assert_eq!(by_ring(report), 13);
    }
}
