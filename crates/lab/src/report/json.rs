//! What a run says, for programs: the names of these fields stay.

use super::findings::{Finding, Findings};
use super::goals::{Judged, Part, Standing, goals};
use crate::result::{Figure, Run};
use crate::stats::{Comparison, Interval};
use indexmap::IndexMap;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct Judgement<'a> {
    scenario: &'a str,
    lines: Vec<Line<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    goals: Vec<Reached<'a>>,
    notes: &'a [String],
}

/// A goal of the scenario, and what was measured for it.
#[derive(Debug, Serialize)]
struct Reached<'a> {
    goal: &'a str,
    standing: Standing,
    parts: Vec<Part>,
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
    let goals = goals(&findings).into_iter().map(reached).collect();
    let lines = findings.judged.iter().map(|finding| line(&findings, finding)).collect();
    Judgement { scenario: &run.scenario.name, lines, goals, notes: &run.notes }
}

fn reached(goal: Judged<'_>) -> Reached<'_> {
    Reached { goal: &goal.goal.goal, standing: goal.standing(), parts: goal.parts }
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
