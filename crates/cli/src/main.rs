//! `sidestep`: the command line.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod args;
mod bugreport;
mod carrier;
mod completions;
mod daemon;
mod destination;
mod doctor;
mod endpoints;
mod explain;
mod help;
mod hold;
mod lab;
mod locate;
mod metrics;
mod output;
mod policy;
mod reasons;
mod run;
mod serve;
mod service;
mod show;
mod stack;
mod table;

use args::{Args, Command};
use clap::{CommandFactory, FromArgMatches};
use sidestep_error::chain;
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = help::grouped(Args::command()).get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let result = match args.command {
        Command::Run(args) => run::run(&args),
        Command::Status(args) => show::status(&args),
        Command::Detach(args) => hold::set(&args, true),
        Command::Attach(args) => hold::set(&args, false),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Talk => doctor::selftest::talk().map(|()| ExitCode::SUCCESS).map_err(Failure::new),
        Command::Reasons(args) => reasons::print(&args),
        Command::Agent(args) => agent::run(None, &args.args),
        Command::Capture(args) => agent::run(Some("capture"), &args.args),
        Command::Splice(args) => agent::run(Some("splice"), &args.args),
        Command::Stack(args) => stack::run(&args.args),
        Command::Lab(args) => lab::run(&args.args),
        Command::Service(args) => service::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Bugreport(args) => bugreport::bugreport(&args),
        Command::Completions(args) => completions::print(&args),
    };
    match result.and_then(|code| output::finish().map(|()| code).map_err(Failure::new)) {
        Ok(code) => code,
        Err(failure) => {
            output::complain(chain(&*failure.error));
            ExitCode::from(failure.code)
        }
    }
}

/// An error for the user, and its exit code.
struct Failure {
    error: Box<dyn Error>,
    code: u8,
}

impl Failure {
    /// An operation failed.
    fn new(error: impl Error + 'static) -> Failure {
        Failure { error: Box::new(error), code: 1 }
    }

    /// A usage error, with clap's exit code.
    fn usage(error: impl Error + 'static) -> Failure {
        Failure { error: Box::new(error), code: 2 }
    }
}
