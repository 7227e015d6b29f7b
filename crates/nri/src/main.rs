//! `sidestep-nri`: the plugin, and the commands that put the library in place on a node.
#![forbid(unsafe_code)]

mod args;

use args::{Args, Collect, Command, Install, Run};
use clap::Parser;
use sidestep_error::chain;
use sidestep_nri::run::{RunError, run};
use sidestep_nri::store::{CollectError, Collected, InstallError, collect, collect_all, install};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Run(options) => start(options),
        Command::Install(options) => put(&options),
        Command::Collect(options) => clear(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep-nri: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error(transparent)]
    Collect(#[from] CollectError),
}

fn start(options: Run) -> Result<(), Error> {
    match run(options.settings())? {}
}

fn put(options: &Install) -> Result<(), Error> {
    println!("{}", install(&options.from, &options.to)?.display());
    Ok(())
}

fn clear(options: &Collect) -> Result<(), Error> {
    let keep = Duration::from_secs(options.keep);
    let done = match options.all {
        true => collect_all(&options.library, &options.proc),
        false => collect(&options.library, keep, &options.proc),
    };
    let Collected { removed, used, recent } = match done {
        Err(error @ (CollectError::Use(_) | CollectError::NoCurrent { .. })) if options.if_possible => {
            eprintln!("sidestep-nri: versions stay: {}", chain(&error));
            return Ok(());
        }
        done => done?,
    };
    let say = |what: &str, names: &[String]| names.iter().for_each(|name| println!("{what} {name}"));
    say("removed", &removed);
    say("used", &used);
    say("recent", &recent);
    Ok(())
}
