//! Notes for readers of a result, derived from its trials.

use crate::result::{Carried, Cell, Disturbance, Run, Trial};
use indexmap::{IndexMap, IndexSet};

pub fn of(run: &Run) -> Vec<String> {
    let errors = run.variants.iter().filter_map(|variant| errors(run, &variant.name));
    let idle = run.cells.iter().flat_map(|cell| run.variants.iter().flat_map(|variant| idle_ways(cell, &variant.name)));
    let noted = run.cells.iter().flat_map(|cell| run.variants.iter().filter_map(|variant| noted(cell, &variant.name)));
    let shares = run.carried.iter().filter_map(|(variant, programs)| shares(variant, programs));
    errors.chain(idle).chain(noted).chain(shares).chain(disturbed(run)).collect()
}

fn counting(run: &Run) -> impl Iterator<Item = &Trial> {
    run.cells.iter().flat_map(|cell| &cell.trials).filter(|trial| trial.counts())
}

/// Requests that failed while others were answered.
fn errors(run: &Run, variant: &str) -> Option<String> {
    let outcomes = counting(run).filter(|trial| trial.variant == variant).filter_map(|trial| trial.outcome.as_ref());
    let sum = |(errors, all): (u64, u64), (more, answered): (u64, u64)| (errors + more, all + more + answered);
    let (errors, all) = outcomes.map(|each| (each.errors, each.requests)).fold((0, 0), sum);
    (errors > 0).then(|| format!("{variant}: {errors} of {all} requests failed"))
}

/// A variant's figures say nothing about a mechanism that carried no byte.
fn idle_ways(cell: &Cell, variant: &str) -> Vec<String> {
    let mut ways: IndexMap<&str, u64> = IndexMap::new();
    let trials = cell.trials.iter().filter(|trial| trial.variant == variant && trial.counts());
    trials.flat_map(|trial| &trial.moved).for_each(|(way, bytes)| *ways.entry(way).or_default() += bytes);
    let idle = ways.iter().filter(|(_, bytes)| **bytes == 0);
    idle.map(|(way, _)| format!("{}: not a byte of the load went {way}", with_cell(variant, cell))).collect()
}

/// What checks have said, each thing once: `stack, connections 4000: 3912 of them are carried; 3899 of them are carried`.
fn noted(cell: &Cell, variant: &str) -> Option<String> {
    let trials = cell.trials.iter().filter(|trial| trial.variant == variant && trial.counts());
    let said: IndexSet<&str> = trials.flat_map(|trial| &trial.noted).map(String::as_str).collect();
    let said: Vec<&str> = said.into_iter().collect();
    (!said.is_empty()).then(|| format!("{}: {}", with_cell(variant, cell), said.join("; ")))
}

/// `rings: of the bytes, by ring went 99.8 % of load, 66.3 % of proxy`
fn shares(variant: &str, programs: &IndexMap<String, Carried>) -> Option<String> {
    let share = |(name, bytes): (&String, &Carried)| Some(format!("{:.1} % of {name}", bytes.share()? * 100.0));
    let shares: Vec<String> = programs.iter().filter_map(share).collect();
    (!shares.is_empty()).then(|| format!("{variant}: of the bytes, by ring went {}", shares.join(", ")))
}

/// Disturbed trials that could not be repeated: they count, and readers must know.
fn disturbed(run: &Run) -> Option<String> {
    let disturbed: Vec<Disturbance> = counting(run).filter_map(|trial| trial.disturbed).collect();
    let percent = |part: fn(&Disturbance) -> f64| disturbed.iter().map(part).fold(0.0, f64::max) * 100.0;
    let (some, all, foreign, steal) =
        (disturbed.len(), counting(run).count(), percent(|each| each.foreign), percent(|each| each.steal));
    (some > 0).then(|| {
        format!(
            "the machine was not calm in {some} of {all} trials that count: others took up to {foreign:.0} % of it, its \
             hypervisor up to {steal:.0} %"
        )
    })
}

/// Cells that were left out for lack of time.
pub fn left_out(cells: &[Cell]) -> Option<String> {
    let titles: Vec<String> = cells.iter().map(Cell::title).collect();
    let these = titles.join("; ");
    (!cells.is_empty()).then(|| format!("left out, as a verdict on all does not fit into the time limit: {these}"))
}

/// `rings, connections 64`
pub fn with_cell(variant: &str, cell: &Cell) -> String {
    let title = cell.title();
    if title.is_empty() { variant.into() } else { format!("{variant}, {title}") }
}
