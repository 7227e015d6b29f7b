//! The report for those who just ran it.

use super::answer::{answers, control_line, ending};
use super::findings::{Finding, Findings, word};
use super::table::{Table, cut, printable};
use super::units;
use crate::result::Run;

/// What is left of 100 columns beside the numbers.
const NAME: usize = 30;

/// One line for each cell, judged figure and variant; then what the control says, and the notes.
pub fn table(run: &Run) -> String {
    let findings = Findings::of(run);
    let mut text = printable(&run.scenario.name) + "\n\n";
    text += &rows(&findings).to_string();
    text.push('\n');
    let said = answers(&findings).into_iter().map(|answer| answer.lead() + ".");
    let notes = run.notes.iter().map(|note| format!("Note: {note}"));
    for line in said.chain([control_line(&findings), ending(&findings)]).chain(notes) {
        text += &(printable(&line) + "\n");
    }
    text
}

fn rows(findings: &Findings) -> Table {
    let interval = format!("{} INTERVAL", units::part(findings.run.scenario.confidence));
    let mut table = Table::new(&["FIGURE", "VARIANT", ">MEDIAN", ">CHANGE", &interval, "VERDICT"]);
    let mut last = None;
    for finding in &findings.judged {
        let title = findings.cell(finding).title();
        if last.replace(finding.cell) != Some(finding.cell) && !title.is_empty() {
            table.heading(&title);
        }
        table.row(columns(findings, finding));
    }
    table
}

fn columns(findings: &Findings, finding: &Finding) -> [String; 6] {
    let variant = findings.variant(finding);
    let median = finding.median.map_or(units::NOTHING.into(), |median| units::value(finding.figure, median));
    let figure = if finding.variant == 0 { finding.figure.title() } else { "" };
    let [change, interval, verdict] = said(finding, variant.baseline);
    [figure.into(), cut(&variant.name, NAME), median, change, interval, verdict]
}

/// Change, interval and verdict.
pub fn said(finding: &Finding, baseline: bool) -> [String; 3] {
    let Some(beside) = finding.beside else {
        let verdict = if baseline { "baseline" } else { "not measured" };
        return [String::new(), String::new(), verdict.into()];
    };
    let interval = beside.interval.map_or(String::new(), units::changes);
    [units::change(beside.ratio), interval, word(beside.verdict).into()]
}
