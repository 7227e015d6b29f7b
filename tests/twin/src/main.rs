//! Random programs of socket calls: Sidestep must answer as the kernel does. `twin --help` explains.

mod calls;
mod campaign;
mod data;
mod exec;
mod generate;
mod harness;
mod program;
mod reference;
mod show;
mod trace;

use std::path::Path;

use clap::Parser;
use sidestep_posix::hosts::{self, Side};

use exec::{actor, coordinator};
use harness::options::{Options, Part};
use reference::Reference;

fn main() {
    let options = Options::parse();
    let done = match &options.part {
        Some(Part::Exec { dir, reference, ring, side }) => execute(dir, *reference, ring, side).map(|()| 0),
        Some(Part::Side { meet }) => {
            sidestep_posix::sys::process::die_with_parent();
            let channel = actor::meet_at(meet);
            actor::Actor::new(1).serve(channel);
            Ok(0)
        }
        None => campaign::run(&options),
    };
    std::process::exit(done.unwrap_or_else(|what| {
        eprintln!("twin: {what}");
        2
    }));
}

fn execute(dir: &Path, with_reference: bool, ring: &[String], side: &[String]) -> Result<(), String> {
    let rings = [Side::Client, Side::Server].map(|side| ring.iter().any(|name| name == hosts::name(side)));
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).map_err(|e| format!("{name}: {e}"));
    let steps = program::parse(&read("program")?)?;
    let reference = match with_reference {
        true => {
            let lines: Result<Vec<_>, _> = read("reference")?.lines().map(serde_json::from_str).collect();
            Reference::new(&lines.map_err(|e| format!("reference: {e}"))?)
        }
        false => Reference::default(),
    };
    coordinator::run(&steps, coordinator::Layout { scratch: dir, side, rings, broker: with_reference }, reference)
}
