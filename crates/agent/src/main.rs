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
    let args = args::Args::parse();
    let done = if args.detach { detach::detach(&args) } else { run::run(&args) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep agent: {error}");
            ExitCode::FAILURE
        }
    }
}
