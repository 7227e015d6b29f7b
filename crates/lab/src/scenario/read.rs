//! Reading scenario files.

use super::error::ScenarioError;
use super::{Scenario, check, shipped};
use crate::error::AtPath;
use std::path::Path;

/// Reads a file, or one of the scenarios that come with Sidestep. Also returns the text, which becomes a part of the result.
pub fn read(name: &str) -> Result<(Scenario, String), ScenarioError> {
    let path = Path::new(name);
    let is_file = path.extension().is_some_and(|end| end == "yaml" || end == "yml") || name.contains('/');
    let text = if is_file { std::fs::read_to_string(path).at("read", path)? } else { shipped::find(name)?.to_string() };
    let scenario = parse(&text).map_err(|error| ScenarioError::In { name: name.into(), source: Box::new(error) })?;
    Ok((scenario, text))
}

/// The error says where: by line, or by the path of the field.
pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    let document = yaml_serde::Deserializer::from_str(text);
    let scenario: Scenario = serde_path_to_error::deserialize(document)
        .map_err(|error| ScenarioError::Format { path: error.path().to_string(), source: error.into_inner() })?;
    check::check(&scenario)?;
    Ok(scenario)
}
