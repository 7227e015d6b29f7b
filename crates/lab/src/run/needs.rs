//! Variants that this machine cannot have.

use crate::ground::Ground;
use crate::scenario::{Need, Scenario, Variant};
use crate::world::{Cmd, base_scope, run};
use indexmap::IndexMap;

/// Variants that cannot take part, and why. The error is a scenario's: a template that names nothing, or a baseline that is
/// not to be had.
pub fn unmet(ground: &Ground, scenario: &Scenario) -> Result<IndexMap<String, String>, String> {
    let mut unmet = IndexMap::new();
    for (name, variant) in &scenario.variants {
        if let Some(why) = missing(ground, scenario, variant).map_err(|why| format!("needs, variant {name}: {why}"))? {
            unmet.insert(name.clone(), why);
        }
    }
    match unmet.get(&scenario.baseline) {
        Some(why) => Err(format!("the baseline, {}, cannot be measured here: {why}", scenario.baseline)),
        None => Ok(unmet),
    }
}

fn missing(ground: &Ground, scenario: &Scenario, variant: &Variant) -> Result<Option<String>, String> {
    for need in &variant.needs {
        if !is_met(ground, scenario, need)? {
            return Ok(Some(need.otherwise.clone()));
        }
    }
    Ok(None)
}

fn is_met(ground: &Ground, scenario: &Scenario, need: &Need) -> Result<bool, String> {
    let scope = base_scope(ground, scenario);
    let argv: Vec<String> = need.run.iter().map(|word| word.fill(&scope)).collect::<Result<_, _>>()?;
    // A program that is not there is no mistake of the scenario's.
    let Ok(argv) = ground.resolve(argv) else { return Ok(false) };
    Ok(run(&Cmd { name: "needs".into(), argv, ..Cmd::default() }, None).is_ok())
}
