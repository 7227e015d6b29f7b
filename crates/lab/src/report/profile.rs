//! Where CPU time went, as tables.

use super::units;
use crate::result::{ProcessProfile, Profile, Run};
use indexmap::IndexSet;

/// For each sampled cell a line for each variant and program.
pub struct Profiles<'a> {
    run: &'a Run,
    calls: IndexSet<&'a str>,
}

impl<'a> Profiles<'a> {
    /// None: nothing was sampled.
    pub fn of(run: &'a Run) -> Option<Profiles<'a>> {
        let each = || run.cells.iter().flat_map(|cell| &cell.profiles).flat_map(|profile| profile.processes.values());
        let calls = each().flat_map(|process| process.calls.keys().map(String::as_str)).collect();
        each().next().map(|_| Profiles { run, calls })
    }

    /// Headings of the columns; the first two columns are words.
    pub fn headings(&self) -> Vec<String> {
        let fixed =
            ["variant", "program", "of all CPU", "samples", "own code", "libraries", "kernel"].map(String::from);
        fixed.into_iter().chain(self.calls.iter().map(|call| format!("kernel, {call}"))).collect()
    }

    /// Each cell's title, and its lines.
    pub fn cells(&self) -> impl Iterator<Item = (String, Vec<Vec<String>>)> {
        let sampled = self.run.cells.iter().filter(|cell| !cell.profiles.is_empty());
        sampled.map(|cell| (cell.title(), cell.profiles.iter().flat_map(|profile| self.lines(profile)).collect()))
    }

    fn lines(&self, profile: &Profile) -> Vec<Vec<String>> {
        let all = profile.samples();
        profile.processes.iter().map(|(name, process)| self.line(&profile.variant, name, process, all)).collect()
    }

    fn line(&self, variant: &str, program: &str, process: &ProcessProfile, all: u64) -> Vec<String> {
        let libraries = process.libraries.values().sum();
        let calls = self.calls.iter().map(|call| process.calls.get(*call).copied().unwrap_or_default());
        let parts = [process.own, libraries, process.kernel].into_iter().chain(calls);
        let words = [variant.into(), program.into(), share(process.samples, all), process.samples.to_string()];
        words.into_iter().chain(parts.map(|part| share(part, process.samples))).collect()
    }
}

pub const ABOUT: &str = "One further trial of each variant, sampled; shares of a program are of its own samples.";

fn share(part: u64, all: u64) -> String {
    if all == 0 { units::NOTHING.into() } else { format!("{:.0} %", 100.0 * part as f64 / all as f64) }
}
