//! The findings of a run, computed once for all forms of the report.

use crate::result::{Cell, Figure, Run, Variant};
use crate::stats::{Comparison, Interval, Verdict, box_of, compare, median_interval};
use indexmap::IndexMap;

/// One variant in one cell for one figure, also compared with the baseline.
#[derive(Clone, Debug)]
pub struct Finding {
    pub cell: usize,
    pub figure: Figure,
    pub variant: usize,
    /// Median of all trials that count.
    pub median: Option<f64>,
    pub interval: Option<Interval>,
    /// None for the baseline, and if one of the two has no values.
    pub beside: Option<Comparison>,
}

pub struct Findings<'a> {
    pub run: &'a Run,
    /// For judged figures: ordered by cell, then figure, then variant.
    pub judged: Vec<Finding>,
}

impl<'a> Findings<'a> {
    pub fn of(run: &'a Run) -> Findings<'a> {
        let places = (0..run.cells.len()).flat_map(|cell| {
            let figures = run.scenario.judged.iter();
            figures.flat_map(move |&figure| (0..run.variants.len()).map(move |variant| (cell, figure, variant)))
        });
        Findings { run, judged: places.map(|(cell, figure, variant)| find(run, cell, figure, variant)).collect() }
    }

    /// The finding for any figure, judged or not.
    pub fn at(&self, cell: usize, figure: Figure, variant: usize) -> Finding {
        let same = |one: &&Finding| (one.cell, one.figure, one.variant) == (cell, figure, variant);
        self.judged.iter().find(same).cloned().unwrap_or_else(|| find(self.run, cell, figure, variant))
    }

    pub fn cell(&self, finding: &Finding) -> &'a Cell {
        &self.run.cells[finding.cell]
    }

    pub fn variant(&self, finding: &Finding) -> &'a Variant {
        &self.run.variants[finding.variant]
    }

    /// The baseline's finding in the same cell for the same figure.
    pub fn baseline(&self, finding: &Finding) -> Option<&Finding> {
        let same =
            |one: &&Finding| (one.cell, one.figure) == (finding.cell, finding.figure) && self.variant(one).baseline;
        self.judged.iter().find(same)
    }

    /// A variant's comparisons with the baseline.
    pub fn compared(&self, variant: usize) -> impl Iterator<Item = (&Finding, &Comparison)> {
        let own = self.judged.iter().filter(move |one| one.variant == variant);
        own.filter_map(|one| Some((one, one.beside.as_ref()?)))
    }
}

/// The median, without computing an interval.
pub fn median(run: &Run, cell: usize, figure: Figure, variant: usize) -> Option<f64> {
    let values: Vec<f64> = values(run, cell, figure, variant).into_values().collect();
    box_of(&values).map(|all| all.median)
}

fn values(run: &Run, cell: usize, figure: Figure, variant: usize) -> IndexMap<u32, f64> {
    let mut values = run.cells[cell].values_of(&run.variants[variant].name, figure);
    values.retain(|_, value| value.is_finite());
    values
}

fn find(run: &Run, cell: usize, figure: Figure, variant: usize) -> Finding {
    let confidence = run.scenario.confidence;
    let own = values(run, cell, figure, variant);
    let all: Vec<f64> = own.values().copied().collect();
    // A median needs fewer values than an interval.
    let median = box_of(&all).map(|all| all.median);
    let interval = median_interval(&all, confidence).map(|(_, interval)| interval);
    let base = run.variants.iter().position(|one| one.baseline).filter(|&base| base != variant);
    let beside = base.and_then(|base| beside(run, cell, figure, (variant, base)));
    Finding { cell, figure, variant, median, interval, beside }
}

/// Compares one variant with any other.
pub fn beside(run: &Run, cell: usize, figure: Figure, (own, base): (usize, usize)) -> Option<Comparison> {
    let (own, base) = (values(run, cell, figure, own), values(run, cell, figure, base));
    compare(&own, &base, figure.better(), run.scenario.confidence)
}

/// Verdicts are never shown by colour alone: also by a sign and a word.
pub fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifference => "no difference",
        Verdict::TooFewRounds => "too few rounds",
    }
}
