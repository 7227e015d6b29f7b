//! The implementation of each command.

use crate::args::{Compare, List, Report, Run};
use crate::mine::{self, MineError};
use serde_json::json;
use sidestep_lab::error::{AtPath, FileError};
use sidestep_lab::report::Judgement;
use sidestep_lab::result;
use sidestep_lab::run::{self, Request};
use sidestep_lab::scenario::{self, FieldError, Scenario, ScenarioError, Text};
use sidestep_lab::{compare, report};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// An error and its exit code.
pub struct Failure {
    /// None: the process inside has already printed it.
    pub error: Option<Box<dyn Error>>,
    pub code: u8,
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        match (&error as &dyn Error).downcast_ref() {
            Some(run::Failure::Wrong(_)) => usage(error),
            Some(run::Failure::Said { code }) => Failure { error: None, code: *code },
            _ => Failure { error: Some(Box::new(error)), code: 1 },
        }
    }
}

/// A usage error, with clap's exit code.
fn usage(error: impl Error + 'static) -> Failure {
    Failure { error: Some(Box::new(error)), code: run::WRONG as u8 }
}

/// Complaints of `--strict` and of the scenario's checks about a run that has a result.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
struct Complaints(Vec<String>);

type Done = Result<ExitCode, Failure>;

pub fn run(args: &Run) -> Done {
    let (scenario, text) = named(args).map_err(usage)?;
    let scenario = adjusted(scenario, args).map_err(usage)?;
    let (out, html) = (place(&args.out, &scenario, "json")?, place(&args.html, &scenario, "html")?);
    let html = Some(html).filter(|_| args.html != Path::new("none"));
    result::may_write(&out)?;
    html.as_deref().map_or(Ok(()), result::may_write)?;
    let seed = args.seed.unwrap_or_else(rand::random);
    let request = Request { scenario: scenario.clone(), text, seed, profile: args.profile, out: out.clone() };
    run::run(request)?;
    let done = result::read(&out)?;
    println!("{}", if args.json { judgement(&done)? } else { report::table(&done) });
    eprintln!("result: {}", out.display());
    if let Some(html) = html {
        write(&html, &report::page(&done))?;
        eprintln!("report: {}", html.display());
    }
    let missing = if args.strict { done.missing() } else { Vec::new() };
    let complaints = if done.wrong.is_empty() { missing } else { done.wrong };
    if complaints.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Complaints(complaints).into()) }
}

fn named(args: &Run) -> Result<(Scenario, String), MineError> {
    if args.scenario == mine::NAME { mine::scenario(&args.mine) } else { Ok(scenario::read(&args.scenario)?) }
}

/// The scenario, as changed by the options.
fn adjusted(scenario: Scenario, args: &Run) -> Result<Scenario, FieldError> {
    let mut scenario = if args.quick { scenario.quick() } else { scenario };
    if !args.only.is_empty() {
        scenario.keep_variants(&args.only)?;
    }
    for (axis, values) in &args.axes {
        scenario.set_axis(axis, values.iter().map(|value| Text::from(value.as_str())).collect())?;
    }
    for (name, value) in &args.values {
        scenario.set_value(name, Text::from(value.as_str()))?;
    }
    let design = &mut scenario.design;
    design.limit = args.limit.unwrap_or(design.limit);
    design.precision = args.precision.unwrap_or(design.precision);
    design.most_rounds = args.rounds.unwrap_or(design.most_rounds);
    design.least_rounds = design.least_rounds.min(design.most_rounds);
    if let Some(seconds) = args.seconds {
        scenario.load.seconds = Text::from(seconds.to_string());
    }
    scenario.check_numbers()?;
    Ok(scenario)
}

/// The given path, or one named after the scenario; absolute, since the process inside may have another working directory.
fn place(given: &Path, scenario: &Scenario, end: &str) -> Result<PathBuf, FileError> {
    let named = PathBuf::from(format!("{}.{end}", scenario.name));
    let path = if given == Path::new(&format!("NAME.{end}")) { &named } else { given };
    std::path::absolute(path).at("find the whole path of", path)
}

pub fn list(args: &List) -> Done {
    if let Some(name) = &args.name {
        print!("{}", scenario::find(name).map_err(usage)?);
        return Ok(ExitCode::SUCCESS);
    }
    let all: Result<Vec<Scenario>, ScenarioError> =
        scenario::shipped().iter().map(|(_, text)| scenario::parse(text)).collect();
    let all = all?;
    if args.json {
        println!("{}", pretty(&all.iter().map(summary).collect::<Vec<_>>())?);
        return Ok(ExitCode::SUCCESS);
    }
    for each in &all {
        println!("{:<14} {}", each.name, each.about);
        if let Some(published) = &each.published {
            println!("{:<14}   beside: {}", "", published.source);
        }
    }
    println!("{:<14} {}", mine::NAME, mine::ABOUT);
    Ok(ExitCode::SUCCESS)
}

fn summary(scenario: &Scenario) -> serde_json::Value {
    let variants: Vec<&String> = scenario.variants.keys().collect();
    json!({ "name": scenario.name, "about": scenario.about, "variants": variants, "published": scenario.published })
}

pub fn compare(args: &Compare) -> Done {
    let compared = compare::compare(&result::read(&args.a)?, &result::read(&args.b)?);
    if args.json {
        println!("{}", pretty(&compared)?);
    } else {
        print!("{compared}");
    }
    Ok(ExitCode::SUCCESS)
}

pub fn report(args: &Report) -> Done {
    let run = result::read(&args.result)?;
    let run = match &args.baseline {
        Some(name) => run.beside(name).map_err(usage)?,
        None => run,
    };
    if let Some(html) = &args.html {
        write(html, &report::page(&run))?;
        return Ok(ExitCode::SUCCESS);
    }
    match (args.json, args.markdown) {
        (true, _) => println!("{}", judgement(&run)?),
        (_, true) => print!("{}", report::markdown(&run)),
        _ => print!("{}", report::table(&run)),
    }
    Ok(ExitCode::SUCCESS)
}

fn judgement(run: &result::Run) -> serde_json::Result<String> {
    Judgement::of(run).text()
}

fn pretty(value: &impl serde::Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value)
}

fn write(path: &Path, text: &str) -> Result<(), FileError> {
    std::fs::write(path, text).at("write", path)
}
