//! `sidestep-cni`: a chained CNI plugin. It returns once the agent of the node has captured the pod and enforces its policies,
//! and fails if the agent does not say so: no process of the pod runs uncaptured.
//!
//! ```text
//!   runtime --CNI_COMMAND, configuration--> [`plugin`] --Admission--> agent
//!           <--prevResult, or an error-----            <--Answer-----
//!
//!   administrator --> [`install`]: the program, and its place in the runtime's chain of plugins
//! ```
#![forbid(unsafe_code)]

mod args;
mod config;
mod environment;
mod error;
mod input;
mod install;
mod plugin;

use clap::Parser;
use sidestep_error::chain;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A runtime gives no arguments, and nobody else gives this variable.
    if std::env::var_os(environment::COMMAND).is_some() {
        return plugin::run();
    }
    match install::run(args::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep-cni: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}
