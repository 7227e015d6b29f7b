//! The result of a run for programs and documents. The field names are stable.

use super::findings::{Finding, Findings};
use super::goals::{self, GoalStatus, Part};
use super::published::ours;
use crate::result::{Ended, Figure, Machine, Run};
use crate::stats::{Comparison, Interval};
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A result without its trials: all that a table needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judgement {
    /// The scenario's name.
    pub scenario: String,
    /// The question that the scenario answers.
    pub about: String,
    /// The command line.
    pub command: String,
    /// Sidestep's version.
    pub version: String,
    /// When the run began.
    pub begun: Timestamp,
    /// How long the run took, with everything that is not measured.
    pub seconds: f64,
    /// Why it ended: after a time limit intervals may be too wide.
    pub ended: Ended,
    /// Where it was measured; results of two machines cannot be compared.
    pub machine: Machine,
    /// Confidence of the intervals: 0.95.
    pub confidence: f64,
    /// Half the width of a sufficiently narrow interval, relative to the ratio.
    pub precision: f64,
    /// The judged figures, the most important ones first.
    pub judged: Vec<Figure>,
    /// The judged figures by cell, then figure, then variant; then those that are compared with published ones.
    pub lines: Vec<Line>,
    /// In the scenario's order; empty if it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Reached>,
    /// What a reader must know, such as variants that could not take part.
    pub notes: Vec<String>,
}

/// A goal of the scenario, and the result for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reached {
    pub goal: String,
    pub standing: GoalStatus,
    pub parts: Vec<Part>,
    /// The result as a sentence.
    pub said: String,
}

/// One variant in one cell for one figure that is judged or is compared with a published one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// axis -> value; empty if the scenario has no axes.
    pub cell: IndexMap<String, String>,
    /// Says the unit of `median` and `interval`.
    pub figure: Figure,
    /// Its name in the scenario.
    pub variant: String,
    /// The others are compared with this variant.
    pub baseline: bool,
    /// The baseline a second time: any difference from it is an error of the measurement.
    pub control: bool,
    /// Over the trials that count, in seconds, bytes or a count. None: too few trials.
    pub median: Option<f64>,
    /// The confidence interval of `median`, in the same unit.
    pub interval: Option<Interval>,
    /// Absent for the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Comparison>,
}

impl Judgement {
    /// Judges all trials again; nothing is stored in the run but the trials.
    pub fn of(run: &Run) -> Judgement {
        let findings = Findings::of(run);
        let scenario = &run.scenario;
        Judgement {
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            command: run.command.join(" "),
            version: run.version.clone(),
            begun: run.begun,
            seconds: run.seconds,
            ended: run.ended,
            machine: run.machine.clone(),
            confidence: scenario.confidence,
            precision: scenario.precision,
            judged: scenario.judged.clone(),
            lines: lines(&findings),
            goals: goals::goals(&findings).into_iter().map(reached).collect(),
            notes: run.notes.clone(),
        }
    }

    /// As JSON with one text line for each `Line`, so that files can be read and compared.
    pub fn text(&self) -> serde_json::Result<String> {
        let lines: Result<Vec<String>, _> = self.lines.iter().map(serde_json::to_string).collect();
        let lines = lines?.iter().map(|line| format!("\n    {line}")).collect::<Vec<_>>().join(",");
        let head = serde_json::to_string_pretty(&Judgement { lines: Vec::new(), ..self.clone() })?;
        // This can only match the field: within a JSON string the quotes would be escaped.
        Ok(head.replacen("\"lines\": []", &format!("\"lines\": [{lines}\n  ]"), 1))
    }

    /// The line of a variant and a figure in the only cell that has these values.
    pub fn line(&self, cell: &IndexMap<String, String>, figure: Figure, variant: &str) -> Option<&Line> {
        let within = |line: &&Line| cell.iter().all(|(axis, value)| line.cell.get(axis) == Some(value));
        let mut fitting =
            self.lines.iter().filter(|line| line.figure == figure && line.variant == variant).filter(within);
        let line = fitting.next()?;
        fitting.next().is_none().then_some(line)
    }

    /// The name of the variant with which the others are compared. None: there are no lines.
    pub fn baseline(&self) -> Option<&str> {
        self.lines.iter().find(|line| line.baseline).map(|line| line.variant.as_str())
    }

    /// Comparisons with the baseline for judged figures, without the control's.
    pub fn compared(&self) -> impl Iterator<Item = (&Line, &Comparison)> {
        self.decisive().filter(|line| !line.control).filter_map(|line| Some((line, line.beside.as_ref()?)))
    }

    /// The lines of the judged figures, with the baseline's and the control's.
    pub fn decisive(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| self.judged.contains(&line.figure))
    }
}

/// Lines of the judged figures, then of those that are compared with published ones.
fn lines(findings: &Findings) -> Vec<Line> {
    let published = findings.run.scenario.published.iter().flat_map(|published| &published.figures);
    let pairs = published.filter_map(|figure| ours(findings, figure)).flat_map(|(base, own)| [base, own]);
    let mut all = findings.judged.clone();
    for one in pairs {
        let place = |each: &Finding| (each.cell, each.figure, each.variant);
        if !all.iter().any(|each| place(each) == place(&one)) {
            all.push(one);
        }
    }
    all.iter().map(|finding| line(findings, finding)).collect()
}

fn reached(goal: goals::Judged<'_>) -> Reached {
    let (standing, said) = (goal.standing(), goal.to_string());
    Reached { goal: goal.goal.goal.clone(), standing, parts: goal.parts, said }
}

fn line(findings: &Findings, finding: &Finding) -> Line {
    let variant = findings.variant(finding);
    Line {
        cell: findings.cell(finding).values.clone(),
        figure: finding.figure,
        variant: variant.name.clone(),
        baseline: variant.baseline,
        control: variant.control,
        median: finding.median,
        interval: finding.interval,
        beside: finding.beside,
    }
}
