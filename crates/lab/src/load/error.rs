//! Errors of a load, worded for the user.

use super::Tool;
use std::error::Error as StdError;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a tool cannot do a job, or its run has no outcome.
#[derive(Debug, Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum LoadError {
    /// The tool has no such option.
    #[error("{} has no {what}; {instead}", tool.name())]
    Lacks { tool: Tool, what: &'static str, instead: &'static str },
    #[error("{}: {why}", tool.name())]
    Settings { tool: Tool, why: String },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: Box<dyn StdError + Send + Sync> },
    #[error("cannot read the output of {}: {what}{}", tool.name(), at(line))]
    NotUnderstood { tool: Tool, what: String, line: String },
    /// The tool itself reported a failure.
    #[error("{} failed: {said}", tool.name())]
    Failed { tool: Tool, said: String },
    #[error("{} has completed no request; is its target up, and reachable from where the tool runs?", tool.name())]
    NoRequests { tool: Tool },
    #[error("{program} is not installed; run: {install}")]
    NotInstalled { program: String, install: String },
}

/// The beginning of a line, which is enough to find it.
fn at(line: &str) -> String {
    match line.chars().take(120).collect::<String>() {
        start if start.is_empty() => String::new(),
        start => format!(", at: {start}"),
    }
}

impl LoadError {
    pub(super) fn settings(tool: Tool, why: impl Into<String>) -> LoadError {
        LoadError::Settings { tool, why: why.into() }
    }

    pub(super) fn file(path: &Path, why: impl Into<Box<dyn StdError + Send + Sync>>) -> LoadError {
        LoadError::File { path: path.to_owned(), source: why.into() }
    }

    pub(super) fn unclear(tool: Tool, what: impl Display, line: &str) -> LoadError {
        LoadError::NotUnderstood { tool, what: what.to_string(), line: line.to_owned() }
    }
}
