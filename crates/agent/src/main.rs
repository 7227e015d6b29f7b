//! `sidestep-agent`: the agent of a node, which `sidestep agent` executes.
//!
//! ```text
//!   directory ----.
//!   API server ---+- Update -->  [`node::Node`]  --> tables of Services (crates/ebpf, crates/mesh)
//!   addresses ----'            |  ^    ^   |
//!                         answers |    |  captured pods --> [`captures`] --> tables of capture, namespaces
//!                                 |    |                        |
//!                          questions   '------ what became of them
//!                   [`answer`] (UNIX socket), [`metrics`] (HTTP)
//! ```
//!
//! One thread owns all state and the tables of Services; all others send it messages.
//!
//! `sidestep splice` is here as well ([`splice`]), since only this program is built with the kernel half, and `rollout`
//! ([`rollout`]), by which the chart is uninstalled, since only this program is built with a client of the API server.
#![forbid(unsafe_code)]

mod addresses;
mod admission;
mod announce;
mod answer;
mod args;
mod capture;
mod captures;
mod check;
mod cluster;
mod complaints;
mod detach;
mod directory;
mod errand;
mod events;
mod explain;
mod flows;
mod health;
mod health_checks;
mod heard;
mod lock;
mod message;
mod metrics;
mod node;
mod object_name;
mod policies;
mod policing;
mod privileges;
mod questions;
mod reclaimer;
mod repair;
mod report;
mod rings;
mod rollout;
mod run;
mod settings;
mod signals;
mod splice;
mod taint;
mod view;
mod waiting;
mod words;

use clap::Parser;
use sidestep_error::chain;
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    end_with_any_thread();
    let mut words = std::env::args_os().skip(1).peekable();
    let (name, done) = match words.peek() {
        Some(first) if first == capture::COMMAND => (capture::COMMAND, capture::run(words).map_err(Into::into)),
        Some(first) if first == rollout::COMMAND => (rollout::COMMAND, rollout::run(words).map_err(Into::into)),
        Some(first) if first == splice::COMMAND => (splice::COMMAND, splice::run(words).map_err(Into::into)),
        _ => ("agent", agent()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep {name}: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Makes a panic in any thread end the process, as in release builds, which abort. In test builds, which unwind, only the
/// thread would end, unnoticed.
fn end_with_any_thread() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort()
    }));
}

fn agent() -> Result<(), Box<dyn Error>> {
    let args = args::Args::parse();
    if args.detach { Ok(detach::detach(&args)?) } else { Ok(run::run(args)?) }
}
