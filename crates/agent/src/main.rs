//! `sidestep-agent`: the agent of a node, which `sidestep agent` becomes.
//!
//! ```text
//!   directory ----.
//!   API server ---+- Told -->  [`node::Node`]  --> tables of the kernel (crates/ebpf, crates/mesh)
//!   addresses ----'              |      ^
//!                           answers    questions: [`answer`] (UNIX socket), [`metrics`] (HTTP)
//! ```
//!
//! One thread owns all that is known and written; everybody else sends it messages.
#![forbid(unsafe_code)]

mod addresses;
mod answer;
mod args;
mod capture;
mod check;
mod cluster;
mod detach;
mod directory;
mod events;
mod explain;
mod lock;
mod message;
mod metrics;
mod node;
mod questions;
mod reclaimer;
mod report;
mod run;
mod settings;
mod view;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    let is_capture = words.peek().is_some_and(|word| word == capture::COMMAND);
    let (name, done) = if is_capture { (capture::COMMAND, capture::run(words)) } else { ("agent", agent()) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn agent() -> Result<(), String> {
    let args = args::Args::parse();
    if args.detach { detach::detach(&args) } else { run::run(&args) }
}
