//! What a run says, for programs: the names of these fields stay.

use super::findings::{Finding, Findings};
use crate::result::{Figure, Run};
use crate::stats::{Comparison, Interval};
use indexmap::IndexMap;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Judgement<'a> {
    scenario: &'a str,
    lines: Vec<Line<'a>>,
    notes: &'a [String],
}

/// One variant in one cell by one judged figure.
#[derive(Debug, Serialize)]
struct Line<'a> {
    cell: &'a IndexMap<String, String>,
    figure: Figure,
    variant: &'a str,
    baseline: bool,
    control: bool,
    /// Seconds, bytes or a count.
    median: Option<f64>,
    interval: Option<Interval>,
    /// Absent for the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<Comparison>,
}

pub fn judgement(run: &Run) -> Judgement<'_> {
    let findings = Findings::of(run);
    let lines = findings.judged.iter().map(|finding| line(&findings, finding)).collect();
    Judgement { scenario: &run.scenario.name, lines, notes: &run.notes }
}

fn line<'a>(findings: &Findings<'a>, finding: &Finding) -> Line<'a> {
    let variant = findings.variant(finding);
    Line {
        cell: &findings.cell(finding).values,
        figure: finding.figure,
        variant: &variant.name,
        baseline: variant.baseline,
        control: variant.control,
        median: finding.median,
        interval: finding.interval,
        beside: finding.beside,
    }
}
