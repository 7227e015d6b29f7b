//! `sidestep splice`: not a part of the agent, but of the kernel half, which this program is built with. It writes and goes.

mod args;
mod status;

use crate::lock::Lock;
use crate::settings;
use args::{Args, Command};
use clap::Parser;
use sidestep_ebpf::netns;
use sidestep_ebpf::splice::{self, Options};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The first argument, which makes the program this one.
pub const COMMAND: &str = "splice";

pub fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), String> {
    let args = Args::parse_from(arguments);
    if let Some(Command::Status(args)) = &args.command {
        return status::print(args);
    }
    let pins = settings::pins(args.pins.clone());
    let _alone = alone(&pins)?;
    let done = match (args.pause, args.resume, args.remove) {
        (true, ..) => splice::pause(&pins, true),
        (_, true, _) => splice::pause(&pins, false),
        (.., true) => splice::remove(&pins),
        _ => splice::install(&options(&args, &pins)?),
    };
    // Directories in which nothing is left; those of others stay.
    for directory in [splice::directory(&pins), pins] {
        let _ = std::fs::remove_dir(directory);
    }
    done.map_err(|error| error.to_string())
}

/// One of these commands at a time.
fn alone(pins: &Path) -> Result<Lock, String> {
    let own = splice::directory(pins);
    Lock::take(&own)?.ok_or_else(|| format!("{}: another `sidestep splice` is at work there", own.display()))
}

fn options(args: &Args, pins: &Path) -> Result<Options, String> {
    Ok(Options {
        pins: pins.into(),
        cgroup: args.cgroup.clone().map_or_else(settings::cgroup_mount, Ok)?,
        ports: args.port.iter().cloned().collect(),
        netns: args.netns.iter().map(|given| cookie(given)).collect::<Result<_, _>>()?,
        blocking: args.blocking,
        sockets: args.sockets,
    })
}

fn cookie(given: &Path) -> Result<u64, String> {
    let is_name = given.components().count() == 1;
    let file = if is_name { PathBuf::from("/run/netns").join(given) } else { given.into() };
    netns::cookie_of(&file).map_err(|error| format!("--netns {}: {error}", file.display()))
}
