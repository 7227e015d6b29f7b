//! `sidestep agent`: a program of its own, which this one becomes; and asking it.

use crate::args::AgentSocket;
use crate::{Failure, locate};
use sidestep_agent_api::{Answer, Question, ask};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// `command`: what the program is to do besides being the agent.
pub fn run(command: Option<&str>, args: &[OsString]) -> Result<ExitCode, Failure> {
    let program = locate::agent().map_err(|why| {
        Failure::new(format!(
            "{why}: the agent is built by `cargo build --release -p sidestep-agent`, which needs clang"
        ))
    })?;
    Err(become_program(Command::new(&program).args(command).args(args)))
}

/// Only comes back if that did not work.
pub fn become_program(command: &mut Command) -> Failure {
    let error = command.exec();
    Failure::new(format!("cannot execute {}: {error}", command.get_program().display()))
}

impl AgentSocket {
    pub fn ask(&self, question: &Question) -> Result<Answer, Failure> {
        ask(&self.socket, question).map_err(Failure::new)
    }
}

/// An agent that answers something else than what was asked.
pub fn beside_the_point(answer: &Answer) -> Failure {
    Failure::new(format!("the agent is of another version than this command: it answers {answer:?}"))
}

pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(value).map_err(Failure::new)?);
    Ok(())
}
