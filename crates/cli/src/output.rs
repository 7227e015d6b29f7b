//! What the commands write. The macros of std end the process by a panic if the output is full, or its reader has ended.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first failure to write to stdout, after which nothing more is written. As in C, it belongs to the process's stdout, and
/// the end of the process looks at it: a command does all that it is to do, also if nobody reads what it says.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Some output is lost.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
pub struct OutputError(#[source] io::Error);

/// Writes to stdout.
pub fn print(text: impl fmt::Display) {
    let mut failure = failure();
    if failure.is_none() {
        *failure = write!(io::stdout(), "{text}").err();
    }
}

/// The same, with a line's end.
pub fn line(text: impl fmt::Display) {
    print(format_args!("{text}\n"));
}

/// Writes to stderr what belongs beside the output. There is nobody to tell that this failed.
pub fn aside(text: impl fmt::Display) {
    let _ = write!(io::stderr(), "{text}");
}

/// Writes a line to stderr. There is nobody to tell that this failed.
pub fn complain(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "sidestep: {text}");
}

/// Ends the output. A reader that has ended, such as head(1), has what it wants.
pub fn finish() -> Result<(), OutputError> {
    match failure().take().or_else(|| io::stdout().flush().err()) {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(OutputError(error)),
        _ => Ok(()),
    }
}

fn failure() -> MutexGuard<'static, Option<io::Error>> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner)
}
