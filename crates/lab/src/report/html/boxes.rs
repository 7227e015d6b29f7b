//! Box plots of each variant's trials, with every trial as a dot.

use super::scale::Scale;
use super::svg::{WIDTH, class, drawing, figure, line, name, px, upright_grid};
use crate::report::findings::Findings;
use crate::report::units;
use crate::result::{Figure, Trial};
use crate::stats::{BoxPlot, box_of};
use maud::{Markup, html};

/// Height of a row: a variant's name, its box, and its trials.
const ROW: f64 = 46.0;
const NAME: f64 = 11.0;
const HALF: f64 = 6.0;
const AXIS: f64 = 22.0;

pub fn section(findings: &Findings) -> Markup {
    html! {
        section id="spread" {
            h2 { "Trial by trial" }
            p.hint {
                "Each dot is a trial. Box: from p25 to p75 of the trials; whiskers: p5 and p95; upright line: median; "
                "ring: mean. Hollow dots: trials that were disturbed, or repeated and thus not counted. "
                "Scales do not begin at zero."
            }
            @for &figure in &findings.run.scenario.judged {
                h3 { (figure.title()) " " small { (super::direction(figure)) } }
                div.charts {
                    @for cell in 0..findings.run.cells.len() { (panel(findings, cell, figure)) }
                }
            }
        }
    }
}

struct Row<'a> {
    variant: usize,
    name: &'a str,
    trials: Vec<(&'a Trial, f64)>,
    plot: Option<BoxPlot>,
}

fn panel(findings: &Findings, cell: usize, what: Figure) -> Markup {
    let rows: Vec<Row> = (0..findings.run.variants.len()).map(|variant| row(findings, cell, what, variant)).collect();
    let values = rows.iter().flat_map(|row| row.trials.iter().map(|(_, value)| *value));
    let title = findings.run.cells[cell].title();
    let Some(scale) = Scale::fit(values, 8.0, WIDTH - 8.0) else {
        return figure(html! { (title) }, html! { p.hint { "No trial has told this." } });
    };
    let bottom = rows.len() as f64 * ROW + 2.0;
    let content = html! {
        (upright_grid(&scale, &scale.ticks(5), 2.0, bottom, &|tick| units::tick(what, tick)))
        @for (number, row) in rows.iter().enumerate() { (drawn(row, what, &scale, number as f64 * ROW)) }
    };
    figure(html! { (title) }, drawing(&format!("Box plots of {}, {title}", what.title()), bottom + AXIS, content))
}

fn row<'a>(findings: &Findings<'a>, cell: usize, figure: Figure, variant: usize) -> Row<'a> {
    let name = &findings.run.variants[variant].name;
    let own = findings.run.cells[cell].trials.iter().filter(|trial| trial.variant == *name);
    let told = own.filter_map(|trial| Some((trial, figure.of(trial)?)));
    let trials: Vec<(&Trial, f64)> = told.filter(|(_, value)| value.is_finite()).collect();
    let counting: Vec<f64> = trials.iter().filter(|(trial, _)| trial.counts()).map(|(_, value)| *value).collect();
    Row { variant, name, trials, plot: box_of(&counting) }
}

fn drawn(row: &Row, what: Figure, scale: &Scale, top: f64) -> Markup {
    let middle = top + NAME + 4.0 + HALF;
    html! {
        g class=(class(row.variant)) {
            (name(top + NAME, row.name))
            @if let Some(plot) = &row.plot { (boxed(row, plot, what, scale, middle)) }
            @for (trial, value) in &row.trials { (dot(trial, *value, what, scale, middle + HALF + 8.0)) }
        }
    }
}

fn boxed(row: &Row, plot: &BoxPlot, what: Figure, scale: &Scale, y: f64) -> Markup {
    let [p5, p25, median, mean, p75, p95] =
        [plot.p5, plot.p25, plot.median, plot.mean, plot.p75, plot.p95].map(|value| scale.at(value));
    html! {
        g.box {
            title { (row.name) ": " (told(plot, what)) }
            (line("whisker", (p5, y), (p95, y)))
            rect x=(px(p25)) y=(px(y - HALF)) width=(px((p75 - p25).max(1.0))) height=(px(2.0 * HALF)) {}
            (line("median", (median, y - HALF), (median, y + HALF)))
            circle.mean cx=(px(mean)) cy=(px(y)) r="2.2" {}
        }
    }
}

fn told(plot: &BoxPlot, what: Figure) -> String {
    let names = ["p5", "p25", "median", "mean", "p75", "p95"];
    let values = [plot.p5, plot.p25, plot.median, plot.mean, plot.p75, plot.p95];
    let words = names.iter().zip(values).map(|(name, value)| format!("{name} {}", units::value(what, value)));
    words.collect::<Vec<_>>().join(", ")
}

fn dot(trial: &Trial, value: f64, what: Figure, scale: &Scale, y: f64) -> Markup {
    let state = match (trial.repeated, trial.disturbed.is_some()) {
        (true, _) => ", repeated, not counted",
        (_, true) => ", disturbed",
        _ => "",
    };
    // Rounds are offset vertically, so that equal values can be counted.
    let y = y + (f64::from(trial.round % 5) - 2.0) * 2.4;
    html! {
        circle class=(if state.is_empty() { "dot" } else { "dot hollow" }) cx=(px(scale.at(value))) cy=(px(y)) r="2.2" {
            title { "round " (trial.round) ": " (units::value(what, value)) (state) }
        }
    }
}
