//! By what the bytes of a set-up's programs went: each program under `sidestep run` reports it when it ends.

use super::spec::Spec;
use crate::result::Carried;
use crate::scenario::LOAD;
use indexmap::IndexMap;
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
struct Line {
    pid: u32,
    exe: String,
    ring_rx: u64,
    ring_tx: u64,
    kernel_rx: u64,
    kernel_tx: u64,
}

/// name in the scenario -> bytes. Call when all processes have ended. One that a signal killed has reported nothing.
pub fn carried(spec: &Spec, load: &str, pids: &IndexMap<String, u32>, report: &str) -> IndexMap<String, Carried> {
    let mut all: IndexMap<String, Carried> = IndexMap::new();
    for line in report.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
        if let Some(name) = named(spec, load, pids, &line) {
            let bytes = Carried { by_ring: line.ring_rx + line.ring_tx, by_kernel: line.kernel_rx + line.kernel_tx };
            *all.entry(name).or_default() += bytes;
        }
    }
    all
}

/// A program by its pid; what it has started, and the load, by the name of the file. Others are commands of checks.
fn named(spec: &Spec, load: &str, pids: &IndexMap<String, u32>, line: &Line) -> Option<String> {
    let same = |program: &str| Path::new(program).file_name() == Path::new(&line.exe).file_name();
    let by_pid = pids.iter().find(|(_, pid)| **pid == line.pid).map(|(name, _)| name.clone());
    let by_file = || spec.processes.iter().find(|(_, each)| same(&each.program)).map(|(name, _)| name.clone());
    by_pid.or_else(by_file).or_else(|| same(load).then(|| LOAD.into()))
}
