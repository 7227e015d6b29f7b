//! The verdicts as a table: a row for each cell and figure, a column for each variant.

use super::svg::class;
use crate::report::findings::{Finding, Findings, word};
use crate::report::units;
use crate::result::{Cell, Figure};
use crate::stats::{Comparison, Verdict};
use maud::{Markup, html};

pub fn section(findings: &Findings) -> Markup {
    let confidence = units::part(findings.run.scenario.confidence);
    html! {
        section id="verdicts" {
            h2 { "Beside the baseline" }
            p.hint {
                "Changes with their " (confidence) " intervals, from the ratios of trials of the same round. Filled marks: a "
                "difference; open ones: none that could be told from noise."
            }
            (super::forest::charts(findings))
            div.scroll tabindex="0" role="region" aria-label="Verdicts" { (table(findings)) }
        }
    }
}

fn table(findings: &Findings) -> Markup {
    let run = findings.run;
    html! {
        table.verdicts {
            caption { "Medians, changes with their intervals, and verdicts" }
            thead { tr {
                th scope="col" { "figure" }
                @for (number, variant) in run.variants.iter().enumerate() {
                    th scope="col" class=(class(number)) title=(variant.about) {
                        (super::swatch(number)) (variant.name)
                        @if variant.baseline { " " small { "baseline" } }
                        @if variant.control { " " small { "baseline again" } }
                    }
                }
            } }
            @for (number, cell) in run.cells.iter().enumerate() { tbody { (rows(findings, number, cell)) } }
        }
    }
}

fn rows(findings: &Findings, number: usize, cell: &Cell) -> Markup {
    let run = findings.run;
    html! {
        @if !cell.values.is_empty() {
            tr.group { th scope="rowgroup" colspan=(run.variants.len() + 1) { span { (cell.title()) } } }
        }
        @for &figure in &run.scenario.judged {
            tr {
                th scope="row" { (figure.title()) }
                @for variant in 0..run.variants.len() {
                    td class=(class(variant)) { (entry(&findings.at(number, figure, variant))) }
                }
            }
        }
    }
}

fn entry(one: &Finding) -> Markup {
    html! {
        (median(one.figure, one.median))
        @if let Some(beside) = &one.beside { (change(beside)) }
    }
}

fn median(figure: Figure, median: Option<f64>) -> Markup {
    html! { span.median { (median.map_or(units::NOTHING.into(), |median| units::value(figure, median))) } }
}

/// Change, interval, and the verdict as sign, word and colour.
pub fn change(beside: &Comparison) -> Markup {
    html! {
        span.change { (units::change(beside.ratio)) } " "
        (verdict(beside.verdict))
        @if let Some(around) = beside.interval { span.interval { (units::changes(around)) } }
    }
}

pub fn verdict(verdict: Verdict) -> Markup {
    let (class, sign) = match verdict {
        Verdict::Better => ("verdict better", "\u{2714}"),
        Verdict::Worse => ("verdict worse", "\u{2718}"),
        Verdict::NoDifference => ("verdict same", "\u{2248}"),
        Verdict::TooFewRounds => ("verdict same", "?"),
    };
    html! { span class=(class) { span aria-hidden="true" { (sign) } " " (word(verdict)) } }
}
