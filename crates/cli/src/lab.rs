//! `sidestep lab`: a program of its own, which this one becomes.

use crate::agent::become_program;
use crate::{Failure, locate};
use std::ffi::OsString;
use std::process::{Command, ExitCode};

pub fn run(args: &[OsString]) -> Result<ExitCode, Failure> {
    let program = locate::lab().map_err(|why| Failure::new(format!("{why}: cargo build --release builds it")))?;
    Err(become_program(Command::new(program).args(args)))
}
