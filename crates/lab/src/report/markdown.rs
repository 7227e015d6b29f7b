//! The report in Markdown.

use super::answer::{Control, VERDICTS, lead, machine};
use super::findings::word;
use super::judgement::{Judgement, Line};
use super::profile::{ABOUT, Profiles};
use super::units;
use crate::result::{Ended, Figure, Published, PublishedFigure, Run};
use crate::stats::{Comparison, Interval, Verdict};
use indexmap::{IndexMap, IndexSet};
use std::fmt::Write;

/// The number of judged figures that fit in a table. The judgement itself has all.
const FIGURES: usize = 3;

/// The whole report, including where CPU time went.
pub fn markdown(run: &Run) -> String {
    let mut text = section(&Judgement::of(run), run.scenario.published.as_ref());
    Profiles::of(run).iter().for_each(|profiles| sampled(&mut text, profiles));
    text
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

/// A section: heading, command, machine, conclusions, a table with one row for each variant in each cell, the published figures,
/// and the notes.
pub fn section(judgement: &Judgement, published: Option<&Published>) -> String {
    let mut text = format!("## {}\n\n{}.\n", plain(&judgement.scenario), plain(judgement.about.trim_end_matches('.')));
    let _ = writeln!(text, "\n`{}` {}.\n", command(judgement), circumstances(judgement));
    table(&mut text, judgement);
    let _ = writeln!(text, "\n{}", plain(&said(judgement)));
    judgement.goals.iter().for_each(|goal| text += &format!("\nGoal {}.\n", plain(&goal.said)));
    published.iter().for_each(|published| beside_published(&mut text, judgement, published));
    let notes: Vec<String> = judgement.notes.iter().map(|note| format!("- {}\n", plain(note))).collect();
    if !notes.is_empty() {
        text += &format!("\n{}", notes.concat());
    }
    text
}

/// The command line without the result's file, on one line, and without backquotes, which would end the quotation.
fn command(judgement: &Judgement) -> String {
    let mut words = judgement.command.split_whitespace();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if ["--out", "--html"].contains(&word) {
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept.join(" ").replace('`', "'")
}

/// How long it ran, and on which machine.
fn circumstances(judgement: &Judgement) -> String {
    let until = match judgement.ended {
        Ended::Done => "",
        Ended::TimeLimit => ", its time limit,",
        Ended::Interrupted => ", when it was interrupted,",
    };
    format!("ran for {}{until} on {}", units::duration(judgement.seconds), plain(&machine(&judgement.machine)))
}

fn table(text: &mut String, judgement: &Judgement) {
    let places: IndexSet<(Vec<&String>, &str)> =
        judgement.compared().map(|(line, _)| (line.cell.values().collect(), line.variant.as_str())).collect();
    let figures: Vec<Figure> = judgement.judged.iter().copied().take(FIGURES).collect();
    let several = places.iter().any(|(_, variant)| places.iter().any(|(_, other)| other != variant));
    let axes = varying(judgement);
    let mut heading: Vec<String> = axes.iter().map(|axis| plain(axis)).collect();
    heading.extend(several.then(|| "variant".into()));
    heading.extend(figures.iter().map(|figure| figure.title().to_string()));
    let _ = writeln!(text, "| {} |\n|{}", heading.join(" | "), "---|".repeat(heading.len()));
    for line in first_of_each(judgement) {
        let mut row: Vec<String> = axes.iter().map(|axis| plain(&line.cell[axis.as_str()])).collect();
        row.extend(several.then(|| plain(&line.variant)));
        row.extend(said_of(judgement, line, &figures));
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
}

/// The axes in which lines differ.
fn varying(judgement: &Judgement) -> Vec<&String> {
    let Some(first) = judgement.lines.first() else { return Vec::new() };
    let differs = |axis: &&String| judgement.lines.iter().any(|line| line.cell.get(*axis) != first.cell.get(*axis));
    first.cell.keys().filter(differs).collect()
}

/// One line for each variant in each cell.
fn first_of_each(judgement: &Judgement) -> Vec<&Line> {
    let mut seen = IndexSet::new();
    let place = |line: &&Line| (line.cell.values().cloned().collect::<Vec<_>>(), line.variant.clone());
    judgement.compared().map(|(line, _)| line).filter(|line| seen.insert(place(line))).collect()
}

/// The columns for each figure. The medians are in the first one that was measured.
fn said_of(judgement: &Judgement, line: &Line, figures: &[Figure]) -> Vec<String> {
    let mut first = true;
    let figure = |&figure: &Figure| match comparison(judgement, &line.cell, figure, &line.variant) {
        Some(_) if std::mem::take(&mut first) => at(judgement, &line.cell, figure, &line.variant),
        Some([.., change]) => change,
        None => units::NOTHING.into(),
    };
    figures.iter().map(figure).collect()
}

/// `39.9 k/s → 213 k/s: **better**, +422 % (+338 … +525 %)`
fn at(judgement: &Judgement, cell: &IndexMap<String, String>, figure: Figure, variant: &str) -> String {
    match comparison(judgement, cell, figure, variant) {
        Some([base, own, change]) => format!("{base} \u{2192} {own}: {change}"),
        None => units::NOTHING.into(),
    }
}

/// Medians of the baseline and of the variant, and verdict, change and interval. None: not measured.
pub fn comparison(
    judgement: &Judgement,
    cell: &IndexMap<String, String>,
    figure: Figure,
    variant: &str,
) -> Option<[String; 3]> {
    let own = judgement.line(cell, figure, variant)?;
    let base = judgement.line(cell, figure, judgement.baseline()?)?;
    Some([median(base), median(own), verdict(&own.beside?)])
}

fn median(line: &Line) -> String {
    line.median.map_or(units::NOTHING.into(), |median| units::value(line.figure, median))
}

fn verdict(beside: &Comparison) -> String {
    let word = word(beside.verdict);
    let word = if beside.verdict == Verdict::NoDifference { word.into() } else { format!("**{word}**") };
    let interval = beside.interval.map(|interval| format!(" ({})", short(interval))).unwrap_or_default();
    format!("{word}, {}{interval}", units::change(beside.ratio))
}

/// Writes the unit once if both ends have it.
fn short(interval: Interval) -> String {
    let text = units::changes(interval);
    match text.split_once(" % \u{2026} ") {
        Some((low, high)) if high.ends_with(" %") => format!("{low} \u{2026} {high}"),
        _ => text,
    }
}

/// Conclusions for each variant, and for the control.
fn said(judgement: &Judgement) -> String {
    let all: Vec<(&Line, &Comparison)> = judgement.compared().collect();
    let variants: IndexSet<&str> = all.iter().map(|(line, _)| line.variant.as_str()).collect();
    let baseline = judgement.baseline().unwrap_or_default();
    let counts = |variant: &str| {
        VERDICTS.map(|each| all.iter().filter(|(line, one)| line.variant == variant && one.verdict == each).count())
    };
    let leads = variants.iter().map(|variant| lead(variant, baseline, counts(variant)) + ".");
    leads.chain([control(judgement)]).collect::<Vec<_>>().join(" ")
}

/// In a few words; names the differences.
fn control(judgement: &Judgement) -> String {
    let lines: Vec<&Line> = judgement.decisive().filter(|line| line.control && line.beside.is_some()).collect();
    let all: Vec<Comparison> = lines.iter().filter_map(|line| line.beside).collect();
    let control = Control::of(&all, judgement.confidence);
    if lines.is_empty() {
        return "No control took part.".into();
    }
    if control.suspicious() {
        return control.to_string();
    }
    let differs = |line: &&&Line| matches!(line.beside.map(|one| one.verdict), Some(Verdict::Better | Verdict::Worse));
    let named: Vec<String> = lines.iter().filter(differs).map(|line| named(line)).collect();
    let differing = if named.is_empty() { String::new() } else { format!(": {}", named.join("; ")) };
    let (different, of, chance) = (control.different, units::many(control.of, "comparison"), control.chance);
    format!("The control differs in {different} of {of} (by chance: {chance:.1}){differing}.")
}

/// `connections 64, p50, −3.1 %`
fn named(line: &Line) -> String {
    let values = line.cell.iter().map(|(axis, value)| format!("{axis} {value}"));
    let change = line.beside.map(|beside| units::change(beside.ratio)).unwrap_or_default();
    values.chain([line.figure.title().into(), change]).collect::<Vec<_>>().join(", ")
}

/// The published figures, and ours.
fn beside_published(text: &mut String, judgement: &Judgement, published: &Published) {
    let source = match &published.url {
        Some(url) => format!("[{}]({url})", plain(&published.source)),
        None => plain(&published.source),
    };
    let _ = writeln!(text, "\nPublished: {source}. {}.", plain(published.setup.trim_end_matches('.')));
    if !published.figures.is_empty() {
        let _ = writeln!(text, "\n| what | published | here |\n|---|---|---|");
    }
    for figure in &published.figures {
        let [what, before, after, change] =
            [&figure.what, &figure.baseline, &figure.improved, &figure.change].map(|word| plain(word));
        let _ = writeln!(text, "| {what} | {before} \u{2192} {after}: {change} | {} |", here(judgement, figure));
    }
    if !published.differs.is_empty() {
        let _ = writeln!(text, "\n{}", published.differs.iter().map(|one| plain(one)).collect::<Vec<_>>().join(" "));
    }
}

fn here(judgement: &Judgement, published: &PublishedFigure) -> String {
    let not = || "not measured".to_string();
    let Some((figure, variant)) = published.figure.zip(published.variant.as_ref()) else { return not() };
    match comparison(judgement, &published.cell, figure, variant) {
        Some(_) => format!("{}, {}", plain(variant), at(judgement, &published.cell, figure, variant)),
        None => not(),
    }
}

/// On one line, with the special characters of Markdown and HTML escaped.
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
