//! `sidestep stack`: executes the stack's program.

use crate::agent::{BecomeError, become_program};
use crate::{Failure, locate};
use std::ffi::OsString;
use std::process::{Command, ExitCode};

pub fn run(args: &[OsString]) -> Result<ExitCode, Failure> {
    let built = "the stack is built by `cargo build --release -p sidestep-stack`, which needs clang";
    let not_here = |source| Failure::new(BecomeError::NotHere { program: locate::STACK, built, source });
    let program = locate::stack().map_err(not_here)?;
    Err(become_program(Command::new(program).args(args)))
}
