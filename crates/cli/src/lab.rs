//! `sidestep lab`: executes the lab's program.

use crate::agent::{BecomeError, become_program};
use crate::{Failure, locate};
use std::ffi::OsString;
use std::process::{Command, ExitCode};

pub fn run(args: &[OsString]) -> Result<ExitCode, Failure> {
    let built = "`cargo build --release` builds it";
    let not_here = |source| Failure::new(BecomeError::NotHere { program: locate::LAB, built, source });
    let program = locate::lab().map_err(not_here)?;
    Err(become_program(Command::new(program).args(args)))
}
