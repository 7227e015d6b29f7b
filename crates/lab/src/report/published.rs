//! Our figures that are compared with published ones.

use super::findings::{Finding, Findings};
use crate::result::{Cell, PublishedFigure, Run};

/// The baseline's and the variant's findings; None: not measured, or not named.
pub fn ours(findings: &Findings, published: &PublishedFigure) -> Option<(Finding, Finding)> {
    let run = findings.run;
    let (cell, figure) = (cell(run, published)?, published.figure?);
    let base = run.variants.iter().position(|one| one.baseline)?;
    let own = run.variants.iter().position(|one| Some(&one.name) == published.variant.as_ref())?;
    Some((findings.at(cell, figure, base), findings.at(cell, figure, own)))
}

/// The only cell that has these values; without values the only cell of the run.
fn cell(run: &Run, published: &PublishedFigure) -> Option<usize> {
    let same = |cell: &Cell| published.cell.iter().all(|(axis, value)| cell.values.get(axis) == Some(value));
    let fitting: Vec<usize> = (0..run.cells.len()).filter(|&number| same(&run.cells[number])).collect();
    let [only] = fitting[..] else { return None };
    Some(only)
}
