//! `sidestep splice`. It is not a part of the agent, but needs the kernel half, with which this program is built. The command makes
//! its change and ends.

mod args;
mod status;

use crate::lock::{Lock, LockError};
use crate::settings::{self, NoCgroup};
use args::{Args, Command};
use clap::Parser;
use sidestep_ebpf::error::Error;
use sidestep_ebpf::netns;
use sidestep_ebpf::splice::{self, Options};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The first argument that selects this command.
pub const COMMAND: &str = "splice";

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("{}: another `sidestep splice` is changing these pins: try again later", .0.display())]
    Busy(PathBuf),
    #[error("--netns {}", file.display())]
    Netns { file: PathBuf, source: io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Cgroup(#[from] NoCgroup),
    #[error(transparent)]
    Programs(#[from] Error),
}

pub fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), CommandError> {
    let args = Args::parse_from(arguments);
    if let Some(Command::Status(args)) = &args.command {
        return Ok(status::print(args)?);
    }
    let pins = settings::pins(args.pins.clone());
    let _alone = alone(&pins)?;
    let done = match (args.pause, args.resume, args.remove) {
        (true, ..) => splice::pause(&pins, true),
        (_, true, _) => splice::pause(&pins, false),
        (.., true) => splice::remove(&pins),
        _ => splice::install(&options(&args, &pins)?),
    };
    // Removes the directories if they are empty.
    for directory in [splice::directory(&pins), pins] {
        let _ = std::fs::remove_dir(directory);
    }
    Ok(done?)
}

/// Makes sure that only one of these commands runs at a time.
fn alone(pins: &Path) -> Result<Lock, CommandError> {
    let own = splice::directory(pins);
    Lock::acquire(&own)?.ok_or(CommandError::Busy(own))
}

fn options(args: &Args, pins: &Path) -> Result<Options, CommandError> {
    Ok(Options {
        pins: pins.into(),
        cgroup: args.cgroup.clone().map_or_else(settings::cgroup_mount, Ok)?,
        ports: args.port.iter().cloned().collect(),
        netns: args.netns.iter().map(|given| cookie(given)).collect::<Result<_, _>>()?,
        blocking: args.blocking,
        sockets: args.sockets,
    })
}

fn cookie(given: &Path) -> Result<u64, CommandError> {
    let is_name = given.components().count() == 1;
    let file = if is_name { PathBuf::from("/run/netns").join(given) } else { given.into() };
    netns::cookie_of(&file).map_err(|source| CommandError::Netns { file, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_error::chain;

    #[test]
    fn a_namespace_that_is_not_there_is_named_with_the_option() {
        let error = cookie(Path::new("of-nobody")).unwrap_err();
        let expected = "--netns /run/netns/of-nobody: No such file or directory (os error 2)";
        assert_eq!(chain(&error).to_string(), expected);
    }
}
