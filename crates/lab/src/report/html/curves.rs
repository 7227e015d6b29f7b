//! Latency by percentile, as far as there are enough requests.

use super::scale::Scale;
use super::svg::{WIDTH, class, drawing, figure, level_grid, path, px, upright};
use crate::load::Latencies;
use crate::report::findings::Findings;
use crate::report::units;
use crate::result::{Cell, Figure};
use maud::{Markup, html};

const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = HEIGHT - 22.0;
const SHOWN: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// A percentile with fewer requests beyond it is too uncertain.
const BEYOND: f64 = 10.0;

/// Points of a curve between two consecutive nines (90 %, 99 %, ...).
const FINE: usize = 24;

pub fn section(findings: &Findings) -> Markup {
    let panels: Vec<Markup> = findings.run.cells.iter().filter_map(|cell| panel(findings, cell)).collect();
    html! {
        @if !panels.is_empty() {
            section id="percentiles" {
                h2 { "Latency by percentile" }
                p.hint {
                    "All counting trials of a variant together; less is better. A curve ends where fewer than 10 requests "
                    "took longer. Each step to the right holds a tenth of the requests of the one before."
                }
                div.charts { @for panel in panels { (panel) } }
            }
        }
    }
}

struct Curve {
    variant: usize,
    /// Pairs of percentile and seconds.
    points: Vec<(f64, f64)>,
}

fn panel(findings: &Findings, cell: &Cell) -> Option<Markup> {
    let names = findings.run.variants.iter().map(|variant| variant.name.as_str()).enumerate();
    let curves: Vec<Curve> = names.filter_map(|(variant, name)| curve(cell, variant, name)).collect();
    let up = Scale::fit(curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1)), BOTTOM, TOP)?;
    let content = html! {
        (level_grid(&up, &up.ticks(5), LEFT, RIGHT, &|tick| units::tick(Figure::P50, tick)))
        (upright(SHOWN.iter().map(|&percent| (place(percent), format!("{percent} %"))).collect(), TOP, BOTTOM))
        @for curve in &curves { (drawn(findings, curve, &up)) }
    };
    let title = cell.title();
    Some(figure(html! { (title) }, drawing(&format!("Latency by percentile, {title}"), HEIGHT, content)))
}

fn curve(cell: &Cell, variant: usize, name: &str) -> Option<Curve> {
    let mut all = Latencies::new();
    let counting = cell.trials.iter().filter(|trial| trial.variant == name && trial.counts());
    counting.filter_map(|trial| trial.outcome.as_ref()?.latency.as_ref()).for_each(|one| all.add(one));
    let percents = (0..).map(|step| 100.0 - 50.0 * 10f64.powf(-(step as f64) / FINE as f64));
    let told =
        percents.take_while(|percent| *percent <= 99.99 && all.count() as f64 * (1.0 - percent / 100.0) >= BEYOND);
    let points: Vec<_> = told.map(|percent| (percent, all.percentile(percent) as f64 / 1e9)).collect();
    (points.len() > 1).then_some(Curve { variant, points })
}

/// Consecutive nines have equal distances.
fn place(percent: f64) -> f64 {
    let nines = |percent: f64| -(1.0 - percent / 100.0).log10();
    LEFT + (nines(percent) - nines(50.0)) / (nines(99.99) - nines(50.0)) * (RIGHT - LEFT)
}

fn drawn(findings: &Findings, curve: &Curve, up: &Scale) -> Markup {
    let points = curve.points.iter().map(|&(percent, value)| (place(percent), up.at(value)));
    html! {
        g class=(class(curve.variant)) {
            path class="curve" d=(path(points)) {
                title { (findings.run.variants[curve.variant].name) }
            }
            @for percent in SHOWN {
                @if let Some(&(_, value)) = curve.points.iter().min_by(|one, other| {
                    (one.0 - percent).abs().total_cmp(&(other.0 - percent).abs())
                }).filter(|point| (place(point.0) - place(percent)).abs() < 4.0) {
                    circle class="knot" cx=(px(place(percent))) cy=(px(up.at(value))) r="3" {
                        title {
                            (findings.run.variants[curve.variant].name) ": " (percent) " % within " (units::seconds(value))
                        }
                    }
                }
            }
        }
    }
}
