//! The report for documents.

use super::answer::{answers, control_line, ending, machine};
use super::findings::{Finding, Findings};
use super::terminal::said;
use super::units;
use crate::result::Run;
use std::fmt::Write;

/// A section: heading, command, machine, table, what the control says, and the notes.
pub fn markdown(run: &Run) -> String {
    let findings = Findings::of(run);
    let mut text = format!("## {}\n\n{}\n\n", plain(&run.scenario.name), plain(&run.scenario.about));
    text += &format!("`{}`\n\n{}.\n\n", command(run), plain(&machine(run)));
    table(&mut text, &findings);
    answers(&findings).iter().for_each(|answer| text += &format!("\n{}\n", plain(&answer.to_string())));
    text += &format!("\n{} {}\n", plain(&control_line(&findings)), plain(&ending(&findings)));
    for note in &run.notes {
        text += &format!("\n- {}", plain(note));
    }
    text.trim_end().to_owned() + "\n"
}

fn table(text: &mut String, findings: &Findings) {
    let axes = findings.run.cells.iter().any(|cell| !cell.values.is_empty());
    let (heading, rule) = if axes { ("cell | ", "---|") } else { ("", "") };
    let confidence = units::part(findings.run.scenario.confidence);
    let _ = writeln!(text, "| {heading}figure | variant | median | change | {confidence} interval | verdict |");
    let _ = writeln!(text, "|{rule}---|---|--:|--:|---|---|");
    for finding in &findings.judged {
        let cell = if axes { plain(&findings.cell(finding).title()) + " | " } else { String::new() };
        let _ = writeln!(text, "| {cell}{} |", columns(findings, finding).join(" | "));
    }
}

fn columns(findings: &Findings, finding: &Finding) -> [String; 6] {
    let variant = findings.variant(finding);
    let median = finding.median.map_or(units::NOTHING.into(), |median| units::value(finding.figure, median));
    let [change, interval, verdict] = said(finding, variant.baseline);
    let verdict = if variant.baseline || verdict == "no difference" { verdict } else { format!("**{verdict}**") };
    [finding.figure.title().into(), plain(&variant.name), median, change, interval, verdict]
}

/// In one line, within backquotes that it cannot end.
fn command(run: &Run) -> String {
    run.command.join(" ").replace(['`', '\n'], "'")
}

/// In one line, and with nothing that Markdown or HTML would take for its own.
fn plain(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().fold(String::new(), |mut all, c| {
        match c {
            '<' => all.push_str("&lt;"),
            '&' => all.push_str("&amp;"),
            _ if "\\`*_|[]#".contains(c) => all.extend(['\\', c]),
            _ => all.push(c),
        }
        all
    })
}
