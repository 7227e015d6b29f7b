//! Charts of a figure against a numeric axis: connections, rate, size of bodies.

use super::scale::Scale;
use super::svg::{WIDTH, class, drawing, figure, level_grid, line, mark, path, text, upright_grid};
use crate::report::findings::{Finding, Findings};
use crate::report::units;
use crate::result::{Cell, Figure, Run};
use indexmap::{IndexMap, IndexSet};
use maud::{Markup, html};

const HEIGHT: f64 = 220.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = HEIGHT - 34.0;

pub fn section(findings: &Findings) -> Markup {
    let axes = numeric(findings.run);
    html! {
        @for axis in &axes {
            section class="against" {
                h2 { "Against " (axis) }
                p.hint { "Medians of all counting trials, with their " (units::part(findings.run.scenario.confidence)) " intervals." }
                div.charts {
                    @for &figure in &figures(findings.run) {
                        @for others in &others(findings.run, axis) { (panel(findings, axis, figure, others)) }
                    }
                }
            }
        }
    }
}

/// The axes that have more than one value, and only numbers.
fn numeric(run: &Run) -> Vec<String> {
    let names: IndexSet<&String> = run.cells.iter().flat_map(|cell| cell.values.keys()).collect();
    let values = |axis: &str| run.cells.iter().filter_map(|cell| cell.values.get(axis)).collect::<IndexSet<_>>();
    let useful = |axis: &&String| {
        let all = values(axis);
        all.len() > 1 && all.iter().all(|value| number(value).is_some())
    };
    names.into_iter().filter(useful).cloned().collect()
}

/// `64`, `1.5k`, `64 KiB`
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some(text[..end].parse::<f64>().ok()? * unit)
}

/// Amount and latency, whether judged or not, then the judged figures.
fn figures(run: &Run) -> IndexSet<Figure> {
    let told = |figure: &Figure| {
        let trials = run.cells.iter().flat_map(|cell| &cell.trials);
        trials.filter_map(|trial| figure.of(trial)).any(|value| value > 0.0)
    };
    // Bytes are left out if requests are counted: they would show the same.
    let amount = [Figure::Rate, Figure::Throughput].into_iter().find(told);
    let latency = [Figure::P50, Figure::P90].into_iter().filter(told);
    amount.into_iter().chain(latency).chain(run.scenario.judged.iter().copied()).collect()
}

/// Each choice of values for all other axes, which gets a chart of its own.
fn others(run: &Run, axis: &str) -> Vec<IndexMap<String, String>> {
    let mut all = Vec::new();
    for cell in &run.cells {
        let rest = without(cell, axis);
        if !all.contains(&rest) {
            all.push(rest);
        }
    }
    all
}

fn without(cell: &Cell, axis: &str) -> IndexMap<String, String> {
    cell.values.iter().filter(|(name, _)| *name != axis).map(|(name, value)| (name.clone(), value.clone())).collect()
}

struct Series {
    variant: usize,
    points: Vec<(f64, Finding)>,
}

fn panel(findings: &Findings, axis: &str, what: Figure, others: &IndexMap<String, String>) -> Markup {
    let all: Vec<Series> =
        (0..findings.run.variants.len()).map(|variant| series(findings, axis, what, others, variant)).collect();
    let points = || all.iter().flat_map(|series| &series.points);
    let places: Vec<f64> = points().map(|(place, _)| *place).collect();
    let values =
        points().flat_map(|(_, one)| [one.median, one.interval.map(|it| it.low), one.interval.map(|it| it.high)]);
    let (Some(along), Some(up)) =
        (Scale::fit(places.iter().copied(), LEFT + 6.0, RIGHT - 6.0), Scale::fit(values.flatten(), BOTTOM, TOP))
    else {
        return html! {};
    };
    let mut ticks = places.clone();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let content = html! {
        (level_grid(&up, &up.ticks(5), LEFT, RIGHT, &|tick| units::tick(what, tick)))
        (upright_grid(&along, &ticks, TOP, BOTTOM, &|tick| written(findings.run, axis, tick)))
        (text((LEFT + RIGHT) / 2.0, HEIGHT - 4.0, "soft middle", axis))
        @for series in &all { (drawn(findings, series, what, &along, &up)) }
    };
    let rest: String = others.iter().map(|(name, value)| format!("{name} {value}, ")).collect();
    let caption = html! { (what.title()) " " small { (rest) (super::direction(what)) } };
    figure(caption, drawing(&format!("{} against {axis}", what.title()), HEIGHT, content))
}

/// The value as the scenario writes it: `64k`, not 64000.
fn written(run: &Run, axis: &str, value: f64) -> String {
    let mut all = run.cells.iter().filter_map(|cell| cell.values.get(axis));
    all.find(|text| number(text) == Some(value)).cloned().unwrap_or_default()
}

fn series(
    findings: &Findings,
    axis: &str,
    figure: Figure,
    others: &IndexMap<String, String>,
    variant: usize,
) -> Series {
    let cells = findings.run.cells.iter().enumerate().filter(|(_, cell)| without(cell, axis) == *others);
    let placed =
        cells.filter_map(|(cell, one)| Some((number(one.values.get(axis)?)?, findings.at(cell, figure, variant))));
    let mut points: Vec<_> = placed.filter(|(_, finding)| finding.median.is_some()).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    Series { variant, points }
}

fn drawn(findings: &Findings, series: &Series, what: Figure, along: &Scale, up: &Scale) -> Markup {
    let name = &findings.run.variants[series.variant].name;
    // Variants are offset, so that whiskers do not overlap.
    let aside = (series.variant as f64 - (findings.run.variants.len() - 1) as f64 / 2.0) * 1.6;
    let place = |at: f64| along.at(at) + aside;
    let line_through = series.points.iter().filter_map(|(at, one)| Some((place(*at), up.at(one.median?))));
    html! {
        g class=(class(series.variant)) {
            path class="curve" d=(path(line_through)) {}
            @for (at, one) in &series.points {
                g.point {
                    title { (name) ": " (told(one, what)) }
                    @if let Some(around) = one.interval {
                        (line("whisker", (place(*at), up.at(around.low)), (place(*at), up.at(around.high))))
                    }
                    @if let Some(median) = one.median { (mark(series.variant, place(*at), up.at(median))) }
                }
            }
        }
    }
}

fn told(one: &Finding, what: Figure) -> String {
    let value = |value: f64| units::value(what, value);
    let around = one.interval.map(|it| format!(" ({} \u{2026} {})", value(it.low), value(it.high))).unwrap_or_default();
    one.median.map(value).unwrap_or_default() + &around
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn axes_have_numbers_with_units() {
        let cases = [("64", 64.0), ("1.5k", 1500.0), ("64 KiB", 65536.0), ("10MB", 1e7)];
        for (text, value) in cases {
            assert_eq!(number(text), Some(value));
        }
        assert_eq!((number("http2"), number("")), (None, None));
    }
}
