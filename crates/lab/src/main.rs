//! `sidestep lab`: a program of its own, which `sidestep` becomes.
#![forbid(unsafe_code)]

mod args;

use args::{Args, Command};
use clap::Parser;
use sidestep_lab::run::{self, INSIDE, Request};
use sidestep_lab::scenario;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Run(args) => { let (scenario, text) = scenario::read(&args.scenario).unwrap(); let scenario = if args.quick { scenario.quick() } else { scenario }; run::run(Request { scenario, text, seed: args.seed.unwrap_or(1), out: std::path::absolute(&args.out).unwrap() }) }
        Command::Inside => run::inside(),
        _ => todo!(),
    };
    match done { Ok(()) => ExitCode::SUCCESS, Err(why) => { eprintln!("lab: {why}"); ExitCode::FAILURE } }
}
