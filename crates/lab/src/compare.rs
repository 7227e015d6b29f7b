//! Compares two results of one scenario, from different times, machines or versions.
//!
//! Their trials did not alternate, so each difference includes everything else that changed between the two.

mod surroundings;

use crate::report::table::{Table, cut, printable};
use crate::report::{units, word};
use crate::result::{Figure, Run};
use crate::stats::compare_unpaired;
use crate::stats::{Comparison, Verdict};
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What `lab compare` prints; with `--json` in this form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunComparison {
    /// The first result given: what B is compared with.
    pub a: Side,
    /// The second result given.
    pub b: Side,
    /// Of the intervals: that of A's scenario.
    pub confidence: f64,
    /// Cells in A's order, and in each the judged figures of both.
    pub lines: Vec<Line>,
    /// Cells and variants that B lacks, in words.
    pub only_a: Vec<String>,
    /// Those that A lacks.
    pub only_b: Vec<String>,
    /// Differences between the surroundings of the two.
    pub warnings: Vec<String>,
}

/// Identifies a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The scenario's name.
    pub scenario: String,
    /// Of the Sidestep that measured.
    pub version: String,
    /// When the run began, which tells runs of one scenario apart.
    pub begun: Timestamp,
}

/// One variant in one cell, for one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// axis -> value
    pub cell: IndexMap<String, String>,
    /// Its name, which must be the same in both runs.
    pub variant: String,
    /// In A the other variants were compared with this one. A change of it has causes other than a variant's.
    pub baseline: bool,
    /// Says the unit of `a` and `b`.
    pub figure: Figure,
    /// The median over A's trials, in seconds, bytes or a count.
    pub a: f64,
    /// The median over B's trials.
    pub b: f64,
    /// B relative to A.
    pub comparison: Comparison,
}

/// Compares B with A.
pub fn compare(a: &Run, b: &Run) -> RunComparison {
    RunComparison {
        a: Side::of(a),
        b: Side::of(b),
        confidence: a.scenario.confidence,
        lines: lines(a, b),
        only_a: surroundings::only(a, b),
        only_b: surroundings::only(b, a),
        warnings: surroundings::differences(a, b),
    }
}

impl Side {
    fn of(run: &Run) -> Side {
        Side { scenario: run.scenario.name.clone(), version: run.version.clone(), begun: run.begun }
    }
}

fn lines(a: &Run, b: &Run) -> Vec<Line> {
    let mut figures = a.scenario.judged.clone();
    figures.extend(b.scenario.judged.iter().filter(|one| !a.scenario.judged.contains(one)));
    let mut lines = Vec::new();
    for cell in &a.cells {
        for &figure in &figures {
            lines.extend(a.variants.iter().filter_map(|one| line(a, b, &cell.values, figure, &one.name)));
        }
    }
    lines
}

fn line(a: &Run, b: &Run, cell: &IndexMap<String, String>, figure: Figure, variant: &str) -> Option<Line> {
    let (before, after) = (values(a, cell, figure, variant)?, values(b, cell, figure, variant)?);
    let comparison = compare_unpaired(&after, &before, figure.better(), a.scenario.confidence)?;
    let baseline = a.variants.iter().any(|one| one.name == variant && one.baseline);
    let (a, b) = (median(&before)?, median(&after)?);
    Some(Line { cell: cell.clone(), variant: variant.into(), baseline, figure, a, b, comparison })
}

fn values(run: &Run, cell: &IndexMap<String, String>, figure: Figure, variant: &str) -> Option<Vec<f64>> {
    let cell = run.cells.iter().find(|one| one.values == *cell)?;
    Some(cell.values_of(variant, figure).into_values().filter(|value| value.is_finite()).collect())
}

fn median(values: &[f64]) -> Option<f64> {
    crate::stats::box_of(values).map(|all| all.median)
}

impl RunComparison {
    /// How many baselines differ between the runs, and of how many: these changed for other reasons.
    pub fn drift(&self) -> (usize, usize) {
        let base: Vec<_> = self.lines.iter().filter(|line| line.baseline).collect();
        let differs = |line: &&&Line| matches!(line.comparison.verdict, Verdict::Better | Verdict::Worse);
        (base.iter().filter(differs).count(), base.len())
    }

    fn table(&self) -> Table {
        let interval = format!("{} INTERVAL", units::part(self.confidence));
        let mut table = Table::new(&["FIGURE", "VARIANT", ">A", ">B", ">CHANGE", &interval, "B IS"]);
        let mut last: Option<&IndexMap<String, String>> = None;
        for line in &self.lines {
            if last.replace(&line.cell) != Some(&line.cell) && !line.cell.is_empty() {
                table.heading(&title(&line.cell));
            }
            table.row(line.columns());
        }
        table
    }
}

impl Line {
    fn columns(&self) -> [String; 7] {
        let own = &self.comparison;
        [
            self.figure.title().into(),
            cut(&self.variant, 20),
            units::value(self.figure, self.a),
            units::value(self.figure, self.b),
            units::change(own.ratio),
            own.interval.map_or(String::new(), units::changes),
            word(own.verdict).into(),
        ]
    }
}

fn title(cell: &IndexMap<String, String>) -> String {
    let words: Vec<String> = cell.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
    words.join(", ")
}

/// The output for a terminal.
impl fmt::Display for RunComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            let text = format!("{name}: {}, {}, Sidestep {}", side.scenario, side.begun, side.version);
            writeln!(f, "{}", printable(&text))?;
        }
        write!(f, "\n{}\n", self.table())?;
        for (name, only) in [("A", &self.only_a), ("B", &self.only_b)] {
            only.iter().try_for_each(|what| writeln!(f, "Only in {name}: {}", printable(what)))?;
        }
        let (differs, all) = self.drift();
        writeln!(f, "The baselines themselves differ in {differs} of {}.", units::many(all, "comparison"))?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "Warning: {}", printable(warning)))
    }
}
