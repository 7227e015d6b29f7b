//! The report for documents.

use super::answer::{answers, control_line, ending, machine};
use super::findings::{Finding, Findings};
use super::goals::goals;
use super::profile::{ABOUT, Profiles};
use super::published::ours;
use super::terminal::said;
use super::units;
use crate::result::{PublishedFigure, Run};
use std::fmt::Write;

/// A section: heading, command, machine, table, what the control says, and the notes.
pub fn markdown(run: &Run) -> String {
    let findings = Findings::of(run);
    let mut text = format!("## {}\n\n{}\n\n", plain(&run.scenario.name), plain(&run.scenario.about));
    text += &format!("`{}`\n\n{}.\n\n", command(run), plain(&machine(run)));
    table(&mut text, &findings);
    goals(&findings).iter().for_each(|goal| text += &format!("\nGoal {}.\n", plain(&goal.to_string())));
    answers(&findings).iter().for_each(|answer| text += &format!("\n{}\n", plain(&answer.to_string())));
    text += &format!("\n{} {}\n", plain(&control_line(&findings)), plain(&ending(&findings)));
    published(&mut text, &findings);
    Profiles::of(run).iter().for_each(|profiles| sampled(&mut text, profiles));
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

/// What was published, and the same of ours.
fn published(text: &mut String, findings: &Findings) {
    let Some(published) = &findings.run.scenario.published else { return };
    let source = match &published.url {
        Some(url) => format!("[{}]({url})", plain(&published.source)),
        None => plain(&published.source),
    };
    let _ = writeln!(text, "\nPublished: {source}. {}.", plain(&published.setup));
    if !published.figures.is_empty() {
        let _ = writeln!(
            text,
            "\n| published | before | after | change | here, before | after | change |\n|---|--:|--:|--:|--:|--:|---|"
        );
    }
    for figure in &published.figures {
        let theirs = [&figure.what, &figure.baseline, &figure.improved, &figure.change].map(|word| plain(word));
        let _ = writeln!(text, "| {} | {} |", theirs.join(" | "), here(findings, figure).join(" | "));
    }
    if !published.differs.is_empty() {
        let _ = writeln!(text, "\n{}", published.differs.iter().map(|one| plain(one)).collect::<Vec<_>>().join(" "));
    }
}

fn sampled(text: &mut String, profiles: &Profiles) {
    let headings = profiles.headings();
    let rule = (0..headings.len()).map(|column| if column < 2 { "---|" } else { "--:|" }).collect::<String>();
    let _ = writeln!(text, "\n{ABOUT}\n\n| cell | {} |\n|---|{rule}", headings.join(" | "));
    for (title, lines) in profiles.cells() {
        for line in lines {
            let line: Vec<String> = line.iter().map(|word| plain(word)).collect();
            let _ = writeln!(text, "| {} | {} |", plain(&title), line.join(" | "));
        }
    }
}

fn here(findings: &Findings, figure: &PublishedFigure) -> [String; 3] {
    let Some((base, own)) = ours(findings, figure) else { return ["-", "-", "not measured"].map(String::from) };
    let median = |one: &Finding| one.median.map_or(units::NOTHING.into(), |median| units::value(one.figure, median));
    let [change, interval, verdict] = said(&own, false);
    [
        median(&base),
        format!("{} ({})", median(&own), plain(&findings.variant(&own).name)),
        format!("{change} ({interval}), {verdict}"),
    ]
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
