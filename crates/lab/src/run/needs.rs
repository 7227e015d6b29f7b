//! Finds variants that this machine does not support.

use super::error::WrongError;
use crate::context::RunContext;
use crate::environment::{Cmd, base_scope, run};
use crate::scenario::{Need, Scenario, TemplateError, Variant};
use indexmap::IndexMap;

/// Variants that cannot take part, and why. Errors are mistakes in the scenario: an unknown name in a template, or a baseline
/// that is not available.
pub fn unmet(context: &RunContext, scenario: &Scenario) -> Result<IndexMap<String, String>, WrongError> {
    let mut unmet = IndexMap::new();
    for (name, variant) in &scenario.variants {
        let named = |source| WrongError::Need { variant: name.clone(), source };
        if let Some(why) = missing(context, scenario, variant).map_err(named)? {
            unmet.insert(name.clone(), why);
        }
    }
    match unmet.get(&scenario.baseline) {
        Some(why) => Err(WrongError::NoBaseline { baseline: scenario.baseline.clone(), why: why.clone() }),
        None => Ok(unmet),
    }
}

fn missing(context: &RunContext, scenario: &Scenario, variant: &Variant) -> Result<Option<String>, TemplateError> {
    for need in &variant.needs {
        if !is_met(context, scenario, need)? {
            return Ok(Some(need.otherwise.clone()));
        }
    }
    Ok(None)
}

fn is_met(context: &RunContext, scenario: &Scenario, need: &Need) -> Result<bool, TemplateError> {
    let scope = base_scope(context, scenario);
    let argv: Vec<String> = need.run.iter().map(|word| word.fill(&scope)).collect::<Result<_, _>>()?;
    // A missing program is not a mistake in the scenario.
    let Ok(argv) = context.resolve(argv) else { return Ok(false) };
    Ok(run(&Cmd { name: "needs".into(), argv, ..Cmd::default() }, None).is_ok())
}
