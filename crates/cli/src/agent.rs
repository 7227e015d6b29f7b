//! `sidestep agent`: executes the agent's program. And queries to a running agent.

use crate::Failure;
use crate::args::AgentSocket;
use crate::locate::{self, LocateError};
use crate::output;
use sidestep_agent_api::{Answer, Question, ask};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Why the other program could not be executed.
#[derive(Debug, thiserror::Error)]
pub enum BecomeError {
    #[error("{program} was not found: {built}")]
    NotHere { program: &'static str, built: &'static str, source: LocateError },
    #[error("cannot execute {}", program.display())]
    Execute { program: OsString, source: io::Error },
}

/// The agent's answer does not fit the question.
#[derive(Debug, thiserror::Error)]
#[error("the agent has another version than this command (use programs of one release): it answers {0:?}")]
struct BesideThePoint(Answer);

/// `command`: the subcommand of the agent's program; None: the agent itself.
pub fn run(command: Option<&str>, args: &[OsString]) -> Result<ExitCode, Failure> {
    let built = "the agent is built by `cargo build --release -p sidestep-agent`, which needs clang";
    let not_here = |source| Failure::new(BecomeError::NotHere { program: locate::AGENT, built, source });
    let program = locate::agent().map_err(not_here)?;
    Err(become_program(Command::new(&program).args(command).args(args)))
}

/// Executes the program; returns only after an error.
pub fn become_program(command: &mut Command) -> Failure {
    let source = command.exec();
    Failure::new(BecomeError::Execute { program: command.get_program().into(), source })
}

impl AgentSocket {
    pub fn ask(&self, question: &Question) -> Result<Answer, Failure> {
        ask(&self.socket, question).map_err(Failure::new)
    }
}

pub fn beside_the_point(answer: Answer) -> Failure {
    Failure::new(BesideThePoint(answer))
}

pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    output::line(serde_json::to_string_pretty(value).map_err(Failure::new)?);
    Ok(())
}
