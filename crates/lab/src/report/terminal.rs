//! The report for the terminal.

use super::answer::{answers, control_line, ending};
use super::findings::{Finding, Findings, word};
use super::goals::goals;
use super::judgement::Judgement;
use super::profile::{ABOUT, Profiles};
use super::sentence::sentences;
use super::table::{Table, cut, printable};
use super::units;
use crate::result::Run;

/// Width of names: what the numbers leave of 100 columns.
const NAME: usize = 20;

/// One line for each cell, judged figure and variant; then the control, the notes, and last the conclusions.
pub fn table(run: &Run) -> String {
    let findings = Findings::of(run);
    let mut text = printable(&run.scenario.name);
    if let Some(baseline) = run.variants.iter().find(|one| one.baseline) {
        text += &printable(&format!(", beside {}", baseline.name));
    }
    text += &format!("\n\n{}\n", rows(&findings));
    let said = answers(&findings).into_iter().map(|answer| answer.lead() + ".");
    let goals = goals(&findings).into_iter().map(|goal| format!("Goal {goal}."));
    let notes = run.notes.iter().map(|note| format!("Note: {note}"));
    let ending = [control_line(&findings), ending(&findings)];
    for line in said.chain(goals).chain(ending).chain(notes).chain(sentences(&Judgement::of(run))) {
        text += &(printable(&line) + "\n");
    }
    text + &Profiles::of(run).map(|profiles| sampled(&profiles)).unwrap_or_default()
}

fn sampled(profiles: &Profiles) -> String {
    let headings = profiles.headings().into_iter().enumerate();
    let headings: Vec<String> =
        headings.map(|(place, name)| if place < 2 { name } else { format!(">{name}") }.to_uppercase()).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for (title, lines) in profiles.cells() {
        table.heading(&title);
        lines.into_iter().for_each(|line| table.row(line));
    }
    format!("\n{ABOUT}\n\n{table}")
}

fn rows(findings: &Findings) -> Table {
    let interval = format!("{} INTERVAL", units::part(findings.run.scenario.confidence));
    let headings = ["FIGURE", "VARIANT", ">BASELINE", ">MEDIAN", ">CHANGE", &interval, "VERDICT"];
    let mut table = Table::new(&headings);
    let mut last = None;
    for finding in
        findings.judged.iter().filter(|one| !findings.variant(one).control && !findings.variant(one).baseline)
    {
        let title = findings.cell(finding).title();
        if last.replace(finding.cell) != Some(finding.cell) && !title.is_empty() {
            table.heading(&title);
        }
        table.row(columns(findings, finding));
    }
    table
}

fn columns(findings: &Findings, finding: &Finding) -> [String; 7] {
    let shown =
        |median: Option<f64>| median.map_or(units::NOTHING.into(), |median| units::value(finding.figure, median));
    let baseline = findings.baseline(finding).and_then(|one| one.median);
    let [change, interval, verdict] = said(finding, false);
    let name = cut(&findings.variant(finding).name, NAME);
    [finding.figure.title().into(), name, shown(baseline), shown(finding.median), change, interval, verdict]
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
