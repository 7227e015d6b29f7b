//! Why a scenario cannot be used: each error names the field and what is permitted.

use crate::error::FileError;
use crate::load::Tool;

/// Why there is no scenario to run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum ScenarioError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    NotShipped(#[from] NotShipped),
    /// An error in the scenario of that name.
    #[error("{name}: {source}")]
    In { name: String, source: Box<ScenarioError> },
    #[error("{}", located(path, source))]
    Format { path: String, source: yaml_serde::Error },
    #[error(transparent)]
    Field(#[from] FieldError),
}

/// The name of a scenario that does not come with Sidestep.
#[derive(Debug, thiserror::Error)]
#[error("there is no scenario of that name: give one of {}, or a file that ends in .yaml", known.join(", "))]
pub struct NotShipped {
    /// Names of those that do.
    pub known: Vec<&'static str>,
}

/// An invalid field of a scenario that could be read.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {mistake}")]
pub struct FieldError {
    field: String,
    #[source]
    mistake: Mistake,
}

/// What is wrong with a field. Some messages need the field's name before them.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum Mistake {
    #[error("'{name}' is none of {}", known.join(", "))]
    NoneOf { name: String, known: Vec<String> },
    #[error("a name consists of at most 32 letters, digits, '+', '-' and '_'")]
    NotAName,
    #[error("'load' is the name of the load tool")]
    LoadsName,
    #[error("'{name}' occurs twice, or is longer than 9 characters")]
    TwiceOrLong { name: String },
    #[error("'{name}' is reserved for the lab: rename the value or the axis")]
    ReservedName { name: String },
    #[error("'{name}' is a path, or reserved for the lab: give the file another name")]
    ReservedFile { name: String },
    #[error("the command line is empty")]
    NoProgram,
    #[error("the tool {} takes a command, and no target, options or requests", tool.name())]
    MoreThanCommand { tool: Tool },
    #[error("is for the tools command and json; {} takes options", tool.name())]
    NoCommand { tool: Tool },
    #[error("each check has either `run` (a command) or `moved` (ways)")]
    RunOrMoved,
    #[error("the axis has no values")]
    NoValues,
    #[error("an axis has no values, or all cells are skipped")]
    NoCells,
    #[error("the baseline, {baseline}, must be among the variants")]
    NoBaseline { baseline: String },
    #[error("with a process in the background, design.restart has to be trial")]
    Background,
    #[error("{value} is not a fraction of 1, such as 0.05")]
    NotAPart { value: f64 },
    #[error("name at least one figure")]
    NoFigure,
    #[error("{limit} is not a valid limit; an example is 1.05")]
    NotALimit { limit: f64 },
    #[error("least_rounds has to be from 1 to most_rounds")]
    Rounds,
}

impl Mistake {
    pub fn at(self, field: impl Into<String>) -> FieldError {
        FieldError { field: field.into(), mistake: self }
    }
}

/// Some messages of the YAML library already begin with the path.
fn located(path: &str, error: &yaml_serde::Error) -> String {
    match error.to_string() {
        what if path == "." || what.starts_with(path) => what,
        what => format!("{path}: {what}"),
    }
}

/// A template that cannot be filled in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum TemplateError {
    #[error("'${{{rest}' has no closing brace")]
    NotClosed { rest: String },
    #[error("'{name}' is not defined; these are: {}", known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    #[error("the value of '{name}' refers to itself")]
    Circle { name: String },
}

/// A text that its field does not permit.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum TextError {
    #[error("'{0}' is not UID or UID:GID, in numbers")]
    User(String),
    #[error("'{0}' is none of trial, round, never, or a number of rounds")]
    Restart(String),
}
