//! All changes at a glance: every interval next to the line of no change.

use super::scale::Scale;
use super::svg::{WIDTH, class, drawing, figure, line, mark, name, upright_grid};
use crate::report::findings::{Finding, Findings, word};
use crate::report::units;
use crate::result::Figure;
use crate::stats::{Comparison, Verdict};
use maud::{Markup, html};

const TITLE: f64 = 18.0;
const STEP: f64 = 15.0;
const GAP: f64 = 6.0;
const AXIS: f64 = 22.0;

/// One drawing for each figure, with all cells.
pub fn charts(findings: &Findings) -> Markup {
    html! {
        div.charts { @for &figure in &findings.run.scenario.judged { (panel(findings, figure)) } }
    }
}

fn panel(findings: &Findings, what: Figure) -> Markup {
    let own: Vec<_> = findings.judged.iter().filter(|one| one.figure == what).collect();
    let shown: Vec<(&Finding, Comparison)> = own.iter().filter_map(|one| Some((*one, one.beside?))).collect();
    let ends = shown.iter().flat_map(|(_, beside)| {
        let around = beside.interval;
        [Some(beside.ratio), around.map(|it| it.low), around.map(|it| it.high)]
    });
    let Some(scale) = Scale::fit(ends.flatten().chain([1.0]), 10.0, WIDTH - 10.0) else { return html! {} };
    let (rows, bottom) = placed(findings, &shown);
    let content = html! {
        (upright_grid(&scale, &scale.ticks(5), 2.0, bottom, &units::change_tick))
        (line("zero", (scale.at(1.0), 2.0), (scale.at(1.0), bottom)))
        @for row in &rows {
            @match row {
                Row::Title(y, title) => (name(*y, title)),
                Row::Change(y, one, beside) => (drawn(findings, one, beside, &scale, *y)),
            }
        }
    };
    let caption = html! { (what.title()) " " small { (super::direction(what)) } };
    figure(caption, drawing(&format!("Changes of {} beside the baseline", what.title()), bottom + AXIS, content))
}

enum Row<'a> {
    Title(f64, String),
    Change(f64, &'a Finding, Comparison),
}

/// The rows' positions, and the height of all.
fn placed<'a>(findings: &Findings, shown: &[(&'a Finding, Comparison)]) -> (Vec<Row<'a>>, f64) {
    let (mut y, mut last, mut rows) = (0.0, None, Vec::new());
    for (one, beside) in shown {
        let title = findings.cell(one).title();
        if last.replace(one.cell) != Some(one.cell) {
            y += if title.is_empty() { GAP } else { TITLE };
            rows.push(Row::Title(y - 5.0, title));
        }
        y += STEP;
        rows.push(Row::Change(y - STEP / 2.0, one, *beside));
    }
    (rows, y + GAP)
}

fn drawn(findings: &Findings, one: &Finding, beside: &Comparison, scale: &Scale, y: f64) -> Markup {
    let name = &findings.variant(one).name;
    let around = beside.interval.map(|it| format!(" ({})", units::changes(it))).unwrap_or_default();
    let open = matches!(beside.verdict, Verdict::NoDifference | Verdict::TooFewRounds);
    html! {
        g class={ (class(one.variant)) (if open { " open" } else { "" }) } {
            title { (name) ": " (units::change(beside.ratio)) (around) ", " (word(beside.verdict)) }
            @if let Some(it) = beside.interval {
                (line("whisker", (scale.at(it.low), y), (scale.at(it.high), y)))
            }
            (mark(one.variant, scale.at(beside.ratio), y))
        }
    }
}
