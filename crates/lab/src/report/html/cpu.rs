//! CPU time for each request, by process, and other costs for the machine.

use super::scale::Scale;
use super::svg::{WIDTH, class, drawing, figure, name, px, text, upright_grid};
use crate::report::findings::{Findings, median};
use crate::report::units;
use crate::result::{Cell, Figure, Run, Trial};
use indexmap::{IndexMap, IndexSet};
use maud::{Markup, html};

const ROW: f64 = 34.0;
const NAME: f64 = 11.0;
const BAR: f64 = 14.0;
const AXIS: f64 = 22.0;
const OTHERS: [Figure; 6] =
    [Figure::MachineCpu, Figure::HighestCpu, Figure::Switches, Figure::Calls, Figure::Softirq, Figure::Memory];

pub fn section(findings: &Findings) -> Markup {
    let processes = processes(findings.run);
    html! {
        section id="cpu" {
            h2 { "What a request costs" }
            p.hint {
                "CPU time a request, of each process: plain in user space, hatched in the kernel. "
                "Means of all counting trials; less is better."
            }
            ul.key {
                @for (number, name) in processes.iter().enumerate() {
                    li { span class={ "swatch p" (number % 6) } {} (name) }
                }
                li { span.swatch.user {} "user" }
                li { span.swatch.system {} "kernel" }
            }
            div.charts { @for cell in &findings.run.cells { (panel(findings.run, cell, &processes)) } }
            (others(findings))
        }
    }
}

fn processes(run: &Run) -> IndexSet<&str> {
    let trials = run.cells.iter().flat_map(|cell| &cell.trials);
    trials.flat_map(|trial| trial.usage.processes.keys().map(String::as_str)).collect()
}

/// Seconds for each request: of each process, in user space and in the kernel.
type Cost<'a> = IndexMap<&'a str, (f64, f64)>;

fn cost<'a>(cell: &'a Cell, variant: &str) -> Cost<'a> {
    let counting: Vec<&Trial> = cell.trials.iter().filter(|trial| trial.variant == variant && trial.counts()).collect();
    let requests: u64 = counting.iter().filter_map(|trial| trial.outcome.as_ref()).map(|all| all.requests).sum();
    let mut all = Cost::new();
    for (name, usage) in counting.iter().flat_map(|trial| &trial.usage.processes).filter(|_| requests > 0) {
        let (user, system) = all.entry(name.as_str()).or_default();
        *user += usage.user / requests as f64;
        *system += usage.system / requests as f64;
    }
    all
}

fn total(cost: &Cost) -> f64 {
    cost.values().map(|(user, system)| user + system).sum()
}

fn panel(run: &Run, cell: &Cell, processes: &IndexSet<&str>) -> Markup {
    let costs: Vec<Cost> = run.variants.iter().map(|variant| cost(cell, &variant.name)).collect();
    let title = cell.title();
    // The value is to the right of the bar.
    let Some(scale) = Scale::from_zero(costs.iter().map(total), 1.0, WIDTH - 58.0) else { return html! {} };
    let bottom = costs.len() as f64 * ROW + 2.0;
    let content = html! {
        (upright_grid(&scale, &scale.ticks(5), 2.0, bottom, &|tick| units::tick(Figure::Cpu, tick)))
        @for (number, cost) in costs.iter().enumerate() {
            g class=(class(number)) {
                (name(number as f64 * ROW + NAME, &run.variants[number].name))
                (bar(cost, processes, &scale, number as f64 * ROW + NAME + 4.0))
            }
        }
    };
    figure(html! { (title) }, drawing(&format!("CPU time a request, {title}"), bottom + AXIS, content))
}

fn bar(cost: &Cost, processes: &IndexSet<&str>, scale: &Scale, y: f64) -> Markup {
    let mut at = 0.0;
    let parts = cost.iter().flat_map(|(name, (user, system))| [(*name, "user", *user), (*name, "kernel", *system)]);
    let parts: Vec<_> = parts
        .map(|(name, kind, part)| {
            at += part;
            (name, kind, at - part, at)
        })
        .collect();
    html! {
        @for (name, kind, from, to) in &parts {
            @let colour = processes.get_index_of(name).unwrap_or(0) % 6;
            @for pattern in if *kind == "user" { &[""][..] } else { &["", " hatched"][..] } {
                rect class={ "part p" (colour) (pattern) } x=(px(scale.at(*from))) y=(px(y))
                    width=(px(scale.at(*to) - scale.at(*from))) height=(px(BAR)) {
                    title { (name) ", " (kind) ": " (units::seconds(to - from)) }
                }
            }
        }
        (text(scale.at(at) + 5.0, y + BAR - 3.0, "value", &units::seconds(at)))
    }
}

/// Medians of all other figures.
fn others(findings: &Findings) -> Markup {
    let told: Vec<Figure> = OTHERS.into_iter().filter(|&figure| has(findings.run, figure)).collect();
    html! {
        div.scroll tabindex="0" role="region" aria-label="What else was counted" {
            table {
                caption { "Medians of all counting trials" }
                thead { tr {
                    th scope="col" { "variant" }
                    @for figure in &told { th.number scope="col" { (figure.title()) } }
                } }
                @for cell in 0..findings.run.cells.len() { tbody { (rows(findings, cell, &told)) } }
            }
        }
    }
}

fn has(run: &Run, figure: Figure) -> bool {
    run.cells.iter().flat_map(|cell| &cell.trials).any(|trial| figure.of(trial).is_some())
}

fn rows(findings: &Findings, cell: usize, told: &[Figure]) -> Markup {
    let run = findings.run;
    html! {
        @if !run.cells[cell].values.is_empty() {
            tr.group { th scope="rowgroup" colspan=(told.len() + 1) { span { (run.cells[cell].title()) } } }
        }
        @for (number, variant) in run.variants.iter().enumerate() {
            tr class=(class(number)) {
                th scope="row" { (variant.name) }
                @for &figure in told {
                    @let median = median(run, cell, figure, number);
                    td.number { (median.map_or(units::NOTHING.into(), |median| units::value(figure, median))) }
                }
            }
        }
    }
}
