//! Result files.

use super::{FORMAT, Run};
use crate::error::{AtPath, FileError};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Why a result could not be read. Each message names the file and says what to do.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum ReadError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: not a file; name the result itself, e.g. result.json in it", .0.display())]
    NotAFile(PathBuf),
    #[error("{}: not JSON ({source}); is this a file that `lab run` has written?", path.display())]
    NotJson { path: PathBuf, source: serde_json::Error },
    #[error("{}: JSON, but not a result of the lab: it has no format field", .0.display())]
    NotAResult(PathBuf),
    #[error(
        "{}: has format {format}, and this lab reads format {FORMAT}; use the version of Sidestep that wrote it",
        path.display()
    )]
    OtherFormat { path: PathBuf, format: u64 },
    /// The source says where in the file, and what is wrong.
    #[error("{}: damaged: {source}", path.display())]
    Broken { path: PathBuf, source: serde_path_to_error::Error<serde_json::Error> },
}

/// Reads a file that [`write()`] has written.
pub fn read(path: &Path) -> Result<Run, ReadError> {
    let name = || path.to_path_buf();
    if path.exists() && !path.is_file() {
        return Err(ReadError::NotAFile(name()));
    }
    let text = fs::read_to_string(path).map_err(|source| ReadError::Unreadable { path: name(), source })?;
    let json: Value = serde_json::from_str(&text).map_err(|source| ReadError::NotJson { path: name(), source })?;
    // Checked first, since other formats may have nothing else in common.
    let format = json.get("format").and_then(Value::as_u64).ok_or_else(|| ReadError::NotAResult(name()))?;
    if format != u64::from(FORMAT) {
        return Err(ReadError::OtherFormat { path: name(), format });
    }
    // Parsed again from the text, since a `Value` sorts the names of axes and processes.
    let mut json = serde_json::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(&mut json).map_err(|source| ReadError::Broken { path: name(), source })
}

/// Atomic: written to another file, then renamed.
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

/// Whether the result can be written there, checked before the measurement.
pub fn may_write(path: &Path) -> Result<(), FileError> {
    let aside = aside(path);
    let tried = fs::write(&aside, "").and_then(|()| fs::remove_file(&aside));
    tried.at("write", path)
}

/// In the same directory, since rename(2) is atomic only within a file system.
fn aside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}
