//! `sidestep completions`: scripts that complete the command line in a shell. Packages put them where shells look.

use crate::Failure;
use crate::args::{Args, Completions};
use crate::output;
use clap::{Command, CommandFactory};
use std::process::ExitCode;

pub fn print(args: &Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "sidestep", &mut script);
    output::print(String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// The command line without its hidden commands, which the generator would offer.
fn visible() -> Command {
    let all = Args::command();
    let shown = all.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    Command::new("sidestep").version(env!("CARGO_PKG_VERSION")).args(all.get_arguments().cloned()).subcommands(shown)
}
