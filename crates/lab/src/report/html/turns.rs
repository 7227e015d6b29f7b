//! The course of the measurement: what was repeated, what failed.

use super::svg::class;
use crate::report::findings::Findings;
use crate::report::units;
use crate::result::{Cell, Run, Turn};
use indexmap::IndexSet;
use maud::{Markup, html};

pub fn section(findings: &Findings) -> Markup {
    let run = findings.run;
    let turns = run.cells.iter().flat_map(|cell| &cell.turns);
    let ways: IndexSet<&str> = turns.flat_map(|turn| turn.moved.keys().map(String::as_str)).collect();
    html! {
        section id="turns" {
            h2 { "How the measurement went" }
            div.scroll tabindex="0" role="region" aria-label="Turns by variant" {
                table {
                    thead { tr {
                        th scope="col" { "variant" }
                        @for name in ["turns that count", "of them disturbed", "repeated", "failed", "errors"] {
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
    let own: Vec<&Turn> = run.cells.iter().flat_map(|cell| &cell.turns).filter(|turn| turn.variant == *name).collect();
    let count = |what: &dyn Fn(&Turn) -> bool| own.iter().filter(|turn| what(turn)).count();
    let outcomes = || own.iter().filter(|turn| turn.counts()).filter_map(|turn| turn.outcome.as_ref());
    let (requests, errors): (u64, u64) = outcomes().fold((0, 0), |(r, e), all| (r + all.requests, e + all.errors));
    html! {
        tr class=(class(number)) {
            th scope="row" { (super::swatch(number)) (name) }
            td.number { (count(&Turn::counts)) }
            td.number { (count(&|turn| turn.counts() && turn.disturbed.is_some())) }
            td.number { (count(&|turn| turn.repeated)) }
            td.number { (count(&|turn| turn.outcome.is_none())) }
            td.number { (errors) " of " (units::count((requests + errors) as f64)) }
            @for way in ways { td.number { (moved(&own, way)) } }
        }
    }
}

/// Bytes that took this way instead of the kernel's; empty if nobody counted.
fn moved(own: &[&Turn], way: &str) -> String {
    let counted: Vec<u64> =
        own.iter().filter(|turn| turn.counts()).filter_map(|turn| turn.moved.get(way).copied()).collect();
    if counted.is_empty() { units::NOTHING.into() } else { units::bytes(counted.iter().sum::<u64>() as f64) }
}

fn failures(run: &Run) -> Markup {
    let failed = |cell: &Cell| cell.turns.iter().filter(|turn| turn.failure.is_some()).count();
    html! {
        @if run.cells.iter().any(|cell| failed(cell) > 0) {
            details {
                summary { (units::many(run.cells.iter().map(failed).sum(), "turn")) " failed" }
                ul {
                    @for cell in &run.cells {
                        @for turn in &cell.turns {
                            @if let Some(why) = &turn.failure {
                                li { (turn.variant) ", round " (turn.round) @if !cell.values.is_empty() { ", " (cell.title()) } ": " code { (why) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
