//! Whether a scenario's goals were reached.
//!
//! A comparison reaches its limit if its whole interval does, and misses it if no part of the interval does. Otherwise it is open,
//! and more rounds are needed.

use super::findings::{self, Findings};
use super::units;
use crate::result::{Better, Figure, Goal, Run};
use crate::stats::Interval;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GoalStatus {
    Reached,
    Missed,
    Open,
    NotMeasured,
}

impl GoalStatus {
    pub fn word(self) -> &'static str {
        match self {
            GoalStatus::Reached => "reached",
            GoalStatus::Missed => "missed",
            GoalStatus::Open => "open",
            GoalStatus::NotMeasured => "not measured",
        }
    }
}

/// A goal, and all comparisons for it.
pub struct Judged<'a> {
    pub goal: &'a Goal,
    pub parts: Vec<Part>,
}

/// One figure in one cell, by itself or compared with one other variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub what: String,
    pub standing: GoalStatus,
}

pub fn goals<'a>(findings: &Findings<'a>) -> Vec<Judged<'a>> {
    let run = findings.run;
    run.scenario.goals.iter().map(|goal| Judged { goal, parts: parts(findings, goal) }).collect()
}

fn parts(findings: &Findings, goal: &Goal) -> Vec<Part> {
    let run = findings.run;
    let variant = |name: &String| run.variants.iter().position(|one| one.name == *name);
    let Some(own) = variant(&goal.variant) else { return Vec::new() };
    let others: Vec<usize> = goal.beside.iter().filter_map(variant).collect();
    let cells = (0..run.cells.len()).filter(|&cell| goal.is_for(&run.cells[cell].values));
    let places = cells.flat_map(|cell| goal.figures.iter().map(move |&figure| (cell, figure)));
    let part = |place| match goal.beside.is_empty() {
        true => alone(findings, goal, place, own).into_iter().collect::<Vec<_>>(),
        false => others.iter().filter_map(|&other| compared(run, goal, place, (own, other))).collect(),
    };
    places.flat_map(part).collect()
}

/// The figure by itself.
fn alone(findings: &Findings, goal: &Goal, (cell, figure): (usize, Figure), own: usize) -> Option<Part> {
    let one = findings.at(cell, figure, own);
    let values = |around: Interval| {
        format!(" ({} \u{2026} {})", units::value(figure, around.low), units::value(figure, around.high))
    };
    let said = units::value(figure, one.median?) + &one.interval.map_or(String::new(), values);
    Some(Part {
        what: [place(findings.run, cell, figure), said].join(": "),
        standing: standing(one.interval, figure.better(), goal.limit),
    })
}

/// The figure compared with another variant.
fn compared(run: &Run, goal: &Goal, (cell, figure): (usize, Figure), pair: (usize, usize)) -> Option<Part> {
    let beside = findings::beside(run, cell, figure, pair)?;
    let around = beside.interval.map_or(String::new(), |around| format!(" ({})", units::changes(around)));
    let other = &run.variants[pair.1].name;
    let limit = if figure.better() == Better::Higher { 1.0 / goal.limit } else { goal.limit };
    Some(Part {
        what: format!("{} beside {other}: {}{around}", place(run, cell, figure), units::change(beside.ratio)),
        standing: standing(beside.interval, figure.better(), limit),
    })
}

/// `p50, connections 64`
fn place(run: &Run, cell: usize, figure: Figure) -> String {
    let title = run.cells[cell].title();
    if title.is_empty() { figure.title().into() } else { format!("{}, {title}", figure.title()) }
}

fn standing(interval: Option<Interval>, better: Better, limit: f64) -> GoalStatus {
    let Some(Interval { low, high }) = interval else { return GoalStatus::Open };
    // If lower is better, the values are negated, so that higher is better.
    let (worst, best) = if better == Better::Lower { (-high, -low) } else { (low, high) };
    let limit = if better == Better::Lower { -limit } else { limit };
    match (worst >= limit, best < limit) {
        (true, _) => GoalStatus::Reached,
        (_, true) => GoalStatus::Missed,
        _ => GoalStatus::Open,
    }
}

impl Judged<'_> {
    /// The worst of its comparisons.
    pub fn standing(&self) -> GoalStatus {
        let any = |standing| self.count(standing) > 0;
        let order = [GoalStatus::Missed, GoalStatus::Open, GoalStatus::Reached];
        order.into_iter().find(|&standing| any(standing)).unwrap_or(GoalStatus::NotMeasured)
    }

    fn count(&self, standing: GoalStatus) -> usize {
        self.parts.iter().filter(|part| part.standing == standing).count()
    }

    /// ` in 3 of 25 comparisons`
    pub fn share(&self) -> String {
        match self.parts.len() {
            0 => String::new(),
            all => format!(" in {} of {}", self.count(self.standing()), units::many(all, "comparison")),
        }
    }

    /// The comparisons that did not reach it, the missed ones first.
    pub fn rest(&self) -> impl Iterator<Item = &Part> {
        let of = |standing| self.parts.iter().filter(move |part| part.standing == standing);
        of(GoalStatus::Missed).chain(of(GoalStatus::Open))
    }
}

/// `missed in 1 of 4 comparisons: never slower than plain (missed: p50, connections 1 beside plain: +3.1 % (...))`
impl fmt::Display for Judged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: {}", self.standing().word(), self.share(), self.goal.goal)?;
        let rest: Vec<String> = self.rest().map(|part| format!("{}: {}", part.standing.word(), part.what)).collect();
        if rest.is_empty() { Ok(()) } else { write!(f, " ({})", rest.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_on_both_sides_of_a_limit_tells_nothing() {
        let between = |low, high| Some(Interval { low, high });
        for (interval, better, standing_of_it) in [
            (between(0.9, 1.03), Better::Lower, GoalStatus::Reached),
            (between(1.04, 1.2), Better::Lower, GoalStatus::Missed),
            (between(0.9, 1.2), Better::Lower, GoalStatus::Open),
            (between(1.03, 1.2), Better::Higher, GoalStatus::Reached),
            (between(0.8, 1.0), Better::Higher, GoalStatus::Missed),
            (between(0.8, 1.2), Better::Higher, GoalStatus::Open),
            (None, Better::Lower, GoalStatus::Open),
        ] {
            assert_eq!(standing(interval, better, 1.03), standing_of_it, "{interval:?}, {better:?}");
        }
    }
}
