//! `sidestep lab`: a separate program, which `sidestep` executes.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod mine;

use args::{Args, Command};
use clap::Parser;
use commands::Failure;
use sidestep_lab::run::inside;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Run(args) => commands::run(&args),
        Command::List(args) => commands::list(&args),
        Command::Compare(args) => commands::compare(&args),
        Command::Report(args) => commands::report(&args),
        Command::Inside => inside().map(|()| ExitCode::SUCCESS).map_err(Failure::from),
    };
    done.unwrap_or_else(|failure| {
        if let Some(error) = failure.error {
            eprintln!("sidestep lab: {error}");
        }
        ExitCode::from(failure.code)
    })
}
