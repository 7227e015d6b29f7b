//! `sidestep completions`: scripts that complete the command line in a shell. Packages put them where shells look.

use crate::Failure;
use crate::args::{Args, Completions};
use clap::{Command, CommandFactory};
use std::io::{self, Write};
use std::process::ExitCode;

pub fn print(args: &Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "sidestep", &mut script);
    io::stdout().write_all(&script).map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// The command line without its hidden commands, which the generator would offer.
fn visible() -> Command {
    let all = Args::command();
    let shown = all.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    Command::new("sidestep").version(env!("CARGO_PKG_VERSION")).args(all.get_arguments().cloned()).subcommands(shown)
}
