//! Results in files.

use super::{FORMAT, Run};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// Why a result could not be read; each names the file and says what to do about it.
#[derive(Debug)]
pub enum ReadError {
    Unreadable(PathBuf, io::Error),
    NotAFile(PathBuf),
    NotJson(PathBuf, serde_json::Error),
    /// JSON, but none of the lab's.
    NotAResult(PathBuf),
    OtherFormat {
        path: PathBuf,
        format: u64,
    },
    /// Where in the file, and what is wrong there.
    Broken(PathBuf, serde_path_to_error::Error<serde_json::Error>),
}

pub fn read(path: &Path) -> Result<Run, ReadError> {
    let name = || path.to_path_buf();
    if path.exists() && !path.is_file() {
        return Err(ReadError::NotAFile(name()));
    }
    let text = fs::read_to_string(path).map_err(|error| ReadError::Unreadable(name(), error))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| ReadError::NotJson(name(), error))?;
    // Before the rest, as other formats may have nothing else in common.
    let format = json.get("format").and_then(Value::as_u64).ok_or_else(|| ReadError::NotAResult(name()))?;
    if format != u64::from(FORMAT) {
        return Err(ReadError::OtherFormat { path: name(), format });
    }
    // Once more from the text: a `Value` sorts the names of axes and processes.
    let mut json = serde_json::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| ReadError::Broken(name(), error))
}

/// Whole or not at all: written aside, then renamed.
pub fn write(path: &Path, run: &Run) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(run)?;
    text.push(b'\n');
    let aside = aside(path);
    let written = fs::write(&aside, text).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

/// Whether it could be written there: better asked before a measurement than after it.
pub fn may_write(path: &Path) -> Result<(), String> {
    let aside = aside(path);
    let tried = fs::write(&aside, "").and_then(|()| fs::remove_file(&aside));
    tried.map_err(|why| format!("{} cannot be written: {why}", path.display()))
}

/// In the same directory, as only within a file system renaming is atomic.
fn aside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Unreadable(path, error) => write!(f, "{}: {error}", path.display()),
            ReadError::NotAFile(path) => {
                write!(f, "{}: not a file; name the result itself, e.g. result.json in it", path.display())
            }
            ReadError::NotJson(path, error) => {
                write!(f, "{}: not JSON ({error}); is this what `lab run` has written?", path.display())
            }
            ReadError::NotAResult(path) => {
                write!(f, "{}: JSON, but no result of the lab: it names no format", path.display())
            }
            ReadError::OtherFormat { path, format } => write!(
                f,
                "{}: of format {format}, and this lab reads format {FORMAT}; use the version of Sidestep that wrote it",
                path.display()
            ),
            ReadError::Broken(path, error) => write!(f, "{}: damaged: {error}", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}
