//! Reading scenario files.

use super::{Scenario, check, shipped};
use std::path::Path;

/// A file, or one of the scenarios that Sidestep brings along. With the text, as it goes into the result.
pub fn read(name: &str) -> Result<(Scenario, String), String> {
    let path = Path::new(name);
    let is_file = path.extension().is_some_and(|end| end == "yaml" || end == "yml") || name.contains('/');
    let text = if is_file {
        std::fs::read_to_string(path).map_err(|why| format!("{name}: {why}"))?
    } else {
        shipped::find(name)?.to_string()
    };
    let scenario = parse(&text).map_err(|why| format!("{name}: {why}"))?;
    Ok((scenario, text))
}

/// The error says where: a line, or the path of the field.
pub fn parse(text: &str) -> Result<Scenario, String> {
    let document = yaml_serde::Deserializer::from_str(text);
    let scenario: Scenario = serde_path_to_error::deserialize(document).map_err(|why| {
        let path = why.path().to_string();
        let what = why.into_inner().to_string();
        if path == "." || what.starts_with(&path) { what } else { format!("{path}: {what}") }
    })?;
    check::check(&scenario)?;
    Ok(scenario)
}
