//! Why a set-up cannot be started, or does not do what it should.

use super::process::ProcessError;
use crate::context::ProgramError;
use crate::error::FileError;
use crate::scenario::TemplateError;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("capture, splice and the agent need cgroup v2 and root")]
    NeedsCgroup,
    #[error("the agent has not captured all pods after {seconds} s")]
    NotCaptured { seconds: f64 },
    #[error("the output of `sidestep splice status --json` is not JSON: {0}")]
    SpliceStatus(#[source] serde_json::Error),
    #[error("the output of `sidestep splice status --json` has no number of bytes: {0}")]
    NoBytes(serde_json::Value),
    /// A check of the scenario. Once failed, it counts as failed for all trials of the set-up.
    #[error(transparent)]
    Check(Arc<CheckError>),
}

/// A scenario's check has failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("not a byte of the load went {way} (bytes: {counted})")]
    NothingMoved { way: String, counted: String },
}

/// A field of the scenario that cannot be filled in for a variant.
#[derive(Debug, thiserror::Error)]
#[error("{field}, variant {variant}: {source}")]
pub struct SpecError {
    pub field: String,
    pub variant: String,
    pub source: FillError,
}

/// Why a field cannot be filled in.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("{field}: '{text}' is not such a number")]
    NotANumber { field: String, text: String },
    #[error("{field}: {seconds} s is not a valid duration")]
    NotADuration { field: String, seconds: f64 },
    #[error("rings.release: there is no {}", .0.display())]
    NoRelease(PathBuf),
    #[error("backend '{0}' is neither legacy nor nft")]
    Backend(String),
}
