//! The participants: the scenario's variants, and the baseline a second time.

use crate::result;
use crate::scenario::{Scenario, Variant};
use indexmap::IndexMap;

#[derive(Clone, Debug)]
pub struct Contestant {
    /// Name in results.
    pub name: String,
    /// Name in the scenario.
    pub variant: String,
    pub definition: Variant,
    pub baseline: bool,
    pub control: bool,
}

pub const AGAIN: &str = " (again)";

/// The participants, without the variants of those names.
pub fn contestants(scenario: &Scenario, without: &IndexMap<String, String>) -> Vec<Contestant> {
    let one = |(name, definition): (&String, &Variant)| Contestant {
        name: name.clone(),
        variant: name.clone(),
        definition: definition.clone(),
        baseline: *name == scenario.baseline,
        control: false,
    };
    let mut all: Vec<Contestant> =
        scenario.variants.iter().filter(|(name, _)| !without.contains_key(*name)).map(one).collect();
    let baseline = all.iter().find(|each| each.baseline).cloned();
    if let Some(baseline) = baseline.filter(|_| scenario.design.control) {
        all.push(Contestant { name: baseline.name.clone() + AGAIN, baseline: false, control: true, ..baseline });
    }
    all
}

impl Contestant {
    pub fn as_result(&self) -> result::Variant {
        result::Variant {
            name: self.name.clone(),
            about: self.definition.about.clone(),
            baseline: self.baseline,
            control: self.control,
        }
    }
}
