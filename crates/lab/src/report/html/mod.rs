//! The report as a self-contained page: no network, no script, no font.

mod answer;
mod axes;
mod boxes;
mod cpu;
mod curves;
mod forest;
mod goals;
mod profile;
mod published;
mod redo;
mod scale;
mod svg;
mod trials;
mod verdicts;

use super::findings::Findings;
use crate::result::{Better, Figure, Run, Variant};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// Nothing is loaded or executed, even if a name were to defeat the escaping.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Number of colours for variants other than the baseline and its control.
const COLOURS: usize = 7;

/// The whole document; deterministic, so that equal results give equal pages.
pub fn page(run: &Run) -> String {
    let findings = Findings::of(run);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(run))
            body {
                (hatch())
                header { h1 { (run.scenario.name) } p { (run.scenario.about) } }
                (answer::section(&findings))
                (legend(run))
                main {
                    (goals::section(&findings))
                    (verdicts::section(&findings))
                    (published::section(&findings))
                    (axes::section(&findings))
                    (boxes::section(&findings))
                    (curves::section(&findings))
                    (cpu::section(&findings))
                    (profile::section(&findings))
                    (trials::section(&findings))
                    (redo::section(run))
                }
                footer { "sidestep-lab " (run.version) }
            }
        }
    };
    page.into_string()
}

fn head(run: &Run) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (run.scenario.name) }
            style { (PreEscaped(STYLE)) (PreEscaped(own_style(run))) }
        }
    }
}

/// Styles for each variant: its colour, and the rule that hides it.
fn own_style(run: &Run) -> String {
    let numbered = run.variants.iter().enumerate();
    let rule = |(number, variant): (usize, &Variant)| {
        let colour = colour(run, number, variant);
        format!(
            ".n{number}{{--c:var(--{colour})}}body:has(#show{number}:not(:checked)) .variant.n{number}{{display:none}}\n"
        )
    };
    numbered.map(rule).collect()
}

/// The baseline is grey, so that the others stand out.
fn colour(run: &Run, number: usize, variant: &Variant) -> String {
    if variant.baseline || variant.control {
        return if variant.baseline { "base" } else { "control" }.into();
    }
    let before = run.variants[..number].iter().filter(|one| !one.baseline && !one.control).count();
    format!("v{}", before % COLOURS)
}

/// The pattern for time in the kernel, to which every drawing refers.
fn hatch() -> Markup {
    html! {
        svg.defs aria-hidden="true" {
            defs {
                pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    line.hatching x1="0" y1="0" x2="0" y2="4" {}
                }
            }
        }
    }
}

/// Check boxes that work without a script.
fn legend(run: &Run) -> Markup {
    html! {
        nav.legend aria-label="Variants" {
            @for (number, variant) in run.variants.iter().enumerate() {
                label title=(variant.about) {
                    input type="checkbox" id={ "show" (number) } checked;
                    (swatch(number)) (variant.name)
                }
            }
        }
    }
}

/// A variant's mark in its colour, for use before its name.
fn swatch(variant: usize) -> Markup {
    html! {
        svg class={ "swatch n" (variant) } viewBox="-6 -6 12 12" aria-hidden="true" { (svg::mark(variant, 0.0, 0.0)) }
    }
}

fn direction(figure: Figure) -> &'static str {
    match figure.better() {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    }
}
