//! The course of the measurement: what was repeated, what failed.

use super::svg::class;
use crate::report::findings::Findings;
use crate::report::units;
use crate::result::{Cell, Run, Trial};
use indexmap::IndexSet;
use maud::{Markup, html};

pub fn section(findings: &Findings) -> Markup {
    let run = findings.run;
    let trials = run.cells.iter().flat_map(|cell| &cell.trials);
    let ways: IndexSet<&str> = trials.flat_map(|trial| trial.moved.keys().map(String::as_str)).collect();
    html! {
        section id="trials" {
            h2 { "How the measurement went" }
            div.scroll tabindex="0" role="region" aria-label="Trials by variant" {
                table {
                    thead { tr {
                        th scope="col" { "variant" }
                        @for name in ["trials that count", "of them disturbed", "repeated", "failed", "errors"] {
                            th.number scope="col" { (name) }
                        }
                        @for way in &ways { th.number scope="col" { "bytes " (way) } }
                    } }
                    tbody { @for number in 0..run.variants.len() { (row(run, number, &ways)) } }
                }
            }
            (failures(run))
        }
    }
}

fn row(run: &Run, number: usize, ways: &IndexSet<&str>) -> Markup {
    let name = &run.variants[number].name;
    let own: Vec<&Trial> =
        run.cells.iter().flat_map(|cell| &cell.trials).filter(|trial| trial.variant == *name).collect();
    let count = |what: &dyn Fn(&Trial) -> bool| own.iter().filter(|trial| what(trial)).count();
    let outcomes = || own.iter().filter(|trial| trial.counts()).filter_map(|trial| trial.outcome.as_ref());
    let (requests, errors): (u64, u64) = outcomes().fold((0, 0), |(r, e), all| (r + all.requests, e + all.errors));
    html! {
        tr class=(class(number)) {
            th scope="row" { (super::swatch(number)) (name) }
            td.number { (count(&Trial::counts)) }
            td.number { (count(&|trial| trial.counts() && trial.disturbed.is_some())) }
            td.number { (count(&|trial| trial.repeated)) }
            td.number { (count(&|trial| trial.outcome.is_none())) }
            td.number { (errors) " of " (units::count((requests + errors) as f64)) }
            @for way in ways { td.number { (moved(&own, way)) } }
        }
    }
}

/// Bytes that took this way instead of the kernel's; empty if nobody counted.
fn moved(own: &[&Trial], way: &str) -> String {
    let counted: Vec<u64> =
        own.iter().filter(|trial| trial.counts()).filter_map(|trial| trial.moved.get(way).copied()).collect();
    if counted.is_empty() { units::NOTHING.into() } else { units::bytes(counted.iter().sum::<u64>() as f64) }
}

fn failures(run: &Run) -> Markup {
    let failed = |cell: &Cell| cell.trials.iter().filter(|trial| trial.failure.is_some()).count();
    html! {
        @if run.cells.iter().any(|cell| failed(cell) > 0) {
            details {
                summary { (units::many(run.cells.iter().map(failed).sum(), "trial")) " failed" }
                ul {
                    @for cell in &run.cells {
                        @for trial in &cell.trials {
                            @if let Some(why) = &trial.failure {
                                li { (trial.variant) ", round " (trial.round) @if !cell.values.is_empty() { ", " (cell.title()) } ": " code { (why) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
