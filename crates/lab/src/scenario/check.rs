//! Checks of a scenario beyond its syntax.

use super::error::{FieldError, Mistake};
use super::{Load, Process, Restart, Scenario, Text, When};
use crate::load::Tool;
use indexmap::IndexMap;
use std::collections::HashSet;

/// The load tool among the processes; no process of a scenario may have this name.
pub const LOAD: &str = "load";
/// The network namespace that always exists.
pub const NODE: &str = "node";

/// Runs before anything is started. Templates are checked when they are filled, in every cell.
pub fn check(scenario: &Scenario) -> Result<(), FieldError> {
    let variants = || scenario.variants.keys();
    one_of("baseline", &scenario.baseline, variants())?;
    unique("namespaces", &scenario.namespaces)?;
    for (name, process) in &scenario.processes {
        let place = format!("processes.{name}");
        is_name(&place, name)?;
        if name == LOAD {
            return Err(Mistake::LoadsName.at(place));
        }
        check_process(scenario, &place, process)?;
    }
    for (name, variant) in &scenario.variants {
        let place = format!("variants.{name}");
        is_name(&place, name)?;
        known_cells(scenario, &place, &variant.cells)?;
        check_places(scenario, &place, variant)?;
        if variant.needs.iter().any(|need| need.run.is_empty()) {
            return Err(Mistake::NoProgram.at(format!("{place}.needs.run")));
        }
    }
    for (number, combination) in scenario.skip.iter().enumerate() {
        known_cells(scenario, &format!("skip.{}", number + 1), combination)?;
    }
    for each in &scenario.setup {
        check_namespace(scenario, "setup", each.namespace.as_deref())?;
    }
    for each in &scenario.checks {
        check_when(scenario, "checks", &each.when)?;
        if each.run.is_empty() == each.moved.is_empty() {
            return Err(Mistake::RunOrMoved.at("checks"));
        }
    }
    check_namespace(scenario, "load", scenario.load.namespace.as_deref())?;
    check_names(scenario)?;
    check_load(&scenario.load)?;
    check_published(scenario)?;
    check_goals(scenario)?;
    check_background(scenario)?;
    check_quick(scenario)?;
    check_design(scenario)
}

fn check_process(scenario: &Scenario, place: &str, process: &Process) -> Result<(), FieldError> {
    if process.run.is_empty() {
        return Err(Mistake::NoProgram.at(format!("{place}.run")));
    }
    check_namespace(scenario, place, process.namespace.as_deref())?;
    check_when(scenario, place, &process.when)
}

fn check_when(scenario: &Scenario, place: &str, when: &When) -> Result<(), FieldError> {
    for variant in &when.variants {
        one_of(&format!("{place}.when.variants"), variant, scenario.variants.keys())?;
    }
    known_cells(scenario, &format!("{place}.when"), &when.cells)
}

fn known_cells(scenario: &Scenario, place: &str, given: &IndexMap<String, Vec<Text>>) -> Result<(), FieldError> {
    for (axis, values) in given {
        one_of(&format!("{place}.cells"), axis, scenario.axes.keys())?;
        for value in values {
            let known: Vec<String> = scenario.axes[axis].iter().map(|each| each.raw().into()).collect();
            one_of(&format!("{place}.cells.{axis}"), value.raw(), known.iter())?;
        }
    }
    Ok(())
}

fn check_places(scenario: &Scenario, place: &str, variant: &super::Variant) -> Result<(), FieldError> {
    let agents = variant.agent.iter().flat_map(|agent| &agent.capture);
    let named = (variant.capture.iter().chain(agents).map(|each| Some(each.namespace.as_str())))
        .chain(variant.iptables.iter().map(|each| each.namespace.as_deref()))
        .chain(variant.splice.iter().map(|each| each.namespace.as_deref()))
        .chain(variant.setup.iter().map(|each| each.namespace.as_deref()));
    for namespace in named {
        check_namespace(scenario, place, namespace)?;
    }
    let known: Vec<String> = scenario.processes.keys().cloned().chain([LOAD.into()]).collect();
    for name in variant.rings.iter().flat_map(|rings| &rings.only) {
        one_of(&format!("{place}.rings.only"), name, known.iter())?;
    }
    Ok(())
}

fn check_namespace(scenario: &Scenario, place: &str, namespace: Option<&str>) -> Result<(), FieldError> {
    let known: Vec<String> = scenario.namespaces.iter().cloned().chain([NODE.into()]).collect();
    namespace.map_or(Ok(()), |name| one_of(&format!("{place}.namespace"), name, known.iter()))
}

/// Reserved names of templates.
const TAKEN: [&str; 10] =
    ["dir", "shared", "cgroup", "pins", "sidestep", "agent", "bench", "envoy", "kubeproxy", "fill"];
/// Reserved names of files in `${dir}`.
const OWN_FILES: [&str; 6] = ["load", "broker", "report.jsonl", "sidestep.toml", "objects", "agent.sock"];

fn check_names(scenario: &Scenario) -> Result<(), FieldError> {
    let values = scenario.values.keys().chain(scenario.axes.keys());
    for name in values.chain(scenario.variants.values().flat_map(|each| each.values.keys())) {
        if TAKEN.contains(&name.as_str()) || name.ends_with(".address") || name.ends_with(".netns") {
            return Err(Mistake::ReservedName { name: name.clone() }.at("values"));
        }
    }
    for name in scenario.files.keys() {
        if name.contains('/') || name.starts_with('.') || OWN_FILES.contains(&name.as_str()) {
            return Err(Mistake::ReservedFile { name: name.clone() }.at("files"));
        }
    }
    Ok(())
}

/// Refuses fields that would be ignored.
fn check_load(load: &Load) -> Result<(), FieldError> {
    match (load.tool, load.command.is_empty()) {
        (tool @ (Tool::Command | Tool::Json), _)
            if load.requests.is_some() || !load.options.is_empty() || !load.target.raw().is_empty() =>
        {
            Err(Mistake::MoreThanCommand { tool }.at("load"))
        }
        (Tool::Command | Tool::Json, _) | (_, true) => Ok(()),
        (tool, false) => Err(Mistake::NoCommand { tool }.at("load.command")),
    }
}

fn check_quick(scenario: &Scenario) -> Result<(), FieldError> {
    for (axis, values) in &scenario.quick.axes {
        one_of("quick.axes", axis, scenario.axes.keys())?;
        if values.is_empty() {
            return Err(Mistake::NoValues.at(format!("quick.axes.{axis}")));
        }
    }
    for variant in &scenario.quick.variants {
        one_of("quick.variants", variant, scenario.variants.keys())?;
    }
    if !scenario.quick.variants.is_empty() && !scenario.quick.variants.contains(&scenario.baseline) {
        return Err(Mistake::NoBaseline { baseline: scenario.baseline.clone() }.at("quick.variants"));
    }
    Ok(())
}

/// A published figure must name a variant and a cell that exist.
fn check_published(scenario: &Scenario) -> Result<(), FieldError> {
    for figure in scenario.published.iter().flat_map(|published| &published.figures) {
        let place = format!("published.figures.{}", figure.what);
        if let Some(variant) = &figure.variant {
            one_of(&place, variant, scenario.variants.keys())?;
        }
        let texts = |value: &String| vec![Text::from(value.as_str())];
        let cell: IndexMap<_, _> = figure.cell.iter().map(|(axis, value)| (axis.clone(), texts(value))).collect();
        known_cells(scenario, &place, &cell)?;
    }
    Ok(())
}

fn check_goals(scenario: &Scenario) -> Result<(), FieldError> {
    for goal in &scenario.goals {
        let place = format!("goals.{}", goal.goal);
        for variant in [&goal.variant].into_iter().chain(&goal.beside) {
            one_of(&place, variant, scenario.variants.keys())?;
        }
        let texts = |values: &Vec<String>| values.iter().map(|value| Text::from(value.as_str())).collect();
        let cells: IndexMap<_, _> = goal.cells.iter().map(|(axis, values)| (axis.clone(), texts(values))).collect();
        known_cells(scenario, &place, &cells)?;
        if goal.figures.is_empty() {
            return Err(Mistake::NoFigure.at(place));
        }
        if !(goal.limit.is_finite() && goal.limit > 0.0) {
            return Err(Mistake::NotALimit { limit: goal.limit }.at(format!("{place}.limit")));
        }
    }
    Ok(())
}

/// A background process must disturb only its own trial, so no other set-up may exist at the same time.
fn check_background(scenario: &Scenario) -> Result<(), FieldError> {
    let background = scenario.processes.iter().find(|(_, process)| process.background);
    match background {
        Some((name, _)) if scenario.design.restart != Restart::Trial => {
            Err(Mistake::Background.at(format!("processes.{name}")))
        }
        _ => Ok(()),
    }
}

pub fn check_design(scenario: &Scenario) -> Result<(), FieldError> {
    let design = &scenario.design;
    let part = |name: &str, value: f64| {
        let fine = value > 0.0 && value < 1.0;
        fine.then_some(()).ok_or_else(|| Mistake::NotAPart { value }.at(format!("design.{name}")))
    };
    for (name, value) in [
        ("precision", design.precision),
        ("confidence", design.confidence),
        ("steal", design.steal),
        ("foreign", design.foreign),
        ("errors", design.errors),
    ] {
        part(name, value)?;
    }
    if design.judge.is_empty() {
        return Err(Mistake::NoFigure.at("design.judge"));
    }
    if design.least_rounds > design.most_rounds || design.least_rounds == 0 {
        return Err(Mistake::Rounds.at("design"));
    }
    if scenario.cells().is_empty() {
        return Err(Mistake::NoCells.at("axes"));
    }
    Ok(())
}

/// Names become those of directories and namespaces.
fn is_name(place: &str, name: &str) -> Result<(), FieldError> {
    let fine =
        !name.is_empty() && name.len() <= 32 && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-_".contains(c));
    fine.then_some(()).ok_or_else(|| Mistake::NotAName.at(place))
}

fn unique(place: &str, names: &[String]) -> Result<(), FieldError> {
    let mut seen = HashSet::from([NODE]);
    for name in names {
        is_name(place, name)?;
        // An interface's name has at most 15 characters, including a prefix.
        if name.len() > 9 || !seen.insert(name) {
            return Err(Mistake::TwiceOrLong { name: name.clone() }.at(place));
        }
    }
    Ok(())
}

pub fn one_of<'a>(place: &str, name: &str, known: impl Iterator<Item = &'a String>) -> Result<(), FieldError> {
    let known: Vec<&String> = known.collect();
    if known.iter().any(|each| *each == name) {
        return Ok(());
    }
    Err(Mistake::NoneOf { name: name.into(), known: known.into_iter().cloned().collect() }.at(place))
}
