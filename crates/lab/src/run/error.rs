//! Why a run has no result, or a trial no figures.

use crate::context::ProgramError;
use crate::environment::{EnvironmentError, ProcessError, SpecError};
use crate::error::FileError;
use crate::load::LoadError;
use crate::profile::ProfileError;
use crate::scenario::TemplateError;
use std::io;
use std::process::ExitStatus;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum Failure {
    #[error(transparent)]
    Wrong(#[from] WrongError),
    #[error(transparent)]
    NotMeasured(#[from] RunError),
    /// The process inside has printed what is wrong, and has ended with this exit code.
    #[error("the measuring process has ended with exit code {code}")]
    Said { code: u8 },
}

/// The scenario or an option is invalid: nothing was started.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum WrongError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("load: {0}")]
    Load(#[from] LoadError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("needs, variant {variant}: {source}")]
    Need { variant: String, source: TemplateError },
    #[error("the baseline, {baseline}, cannot be measured here: {why}")]
    NoBaseline { baseline: String, why: String },
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum RunError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("prepare: {0}")]
    Prepare(#[from] PrepareError),
    #[error("nothing could be measured")]
    Nothing,
    #[error("cannot find the file of this program: {0}")]
    OwnFile(#[source] io::Error),
    #[error("cannot start unshare(1), of the package util-linux: {0}")]
    Unshare(#[source] io::Error),
    #[error("cannot send the measuring process its instructions: {0}")]
    WriteOrder(#[source] io::Error),
    #[error("cannot read the instructions from the outer process: {0}")]
    ReadOrder(#[source] io::Error),
    #[error("the instructions for the measuring process are not JSON: {0}")]
    Order(#[source] serde_json::Error),
    #[error("cannot handle signals: {0}")]
    Signals(#[source] ctrlc::Error),
    #[error("cannot wait for the measuring process: {0}")]
    Wait(#[source] io::Error),
    #[error("the measuring process has ended ({0})")]
    Ended(ExitStatus),
}

/// Why a command of `prepare` could not be started.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum PrepareError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Why a trial has no figures.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum TrialError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("interrupted")]
    Interrupted,
    /// Error answers are quick, so figures with many of them are worthless.
    #[error("{errors} of {all} requests failed (design.errors)")]
    Refused { errors: u64, all: u64 },
    /// On a busy machine the load may be over before the lab looks.
    #[error("the lab itself got too little CPU time: it measured {seen:.3} s of {seconds:.3} s")]
    KeptFromMeasuring { seen: f64, seconds: f64 },
    #[error(transparent)]
    Profile(#[from] ProfileError),
}
