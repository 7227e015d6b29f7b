//! Goals of a scenario.

use super::Figure;
use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize};

/// A limit for some figures of a variant, in each cell where it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// In words: `never slower than nftables`.
    pub goal: String,
    /// The variant to which it applies.
    pub variant: String,
    /// The variants with which it is compared, each separately. Empty: the figures are taken by themselves.
    #[serde(default)]
    pub beside: Vec<String>,
    /// The goal is reached only if all of them reach the limit.
    pub figures: Vec<Figure>,
    /// In a comparison: by what factor it may be worse. 1.03 allows 3 % more latency, and 1/1.03 of a rate.
    /// By itself: the value that the figure must not be worse than, in seconds, bytes or a count.
    pub limit: f64,
    /// axis -> values; an axis that is not named may have any value.
    #[serde(default, deserialize_with = "scalars", skip_serializing_if = "IndexMap::is_empty")]
    pub cells: IndexMap<String, Vec<String>>,
}

impl Goal {
    /// Whether it applies to the cell with these values.
    pub fn is_for(&self, cell: &IndexMap<String, String>) -> bool {
        self.cells.iter().all(|(axis, values)| cell.get(axis).is_some_and(|value| values.contains(value)))
    }
}

/// A value of an axis, as a scenario may write it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(serde_json::Number),
    Truth(bool),
}

fn scalars<'de, D: Deserializer<'de>>(from: D) -> Result<IndexMap<String, Vec<String>>, D::Error> {
    let cells: IndexMap<String, Vec<Scalar>> = IndexMap::deserialize(from)?;
    let texts = |values: Vec<Scalar>| values.into_iter().map(Scalar::text).collect();
    Ok(cells.into_iter().map(|(axis, values)| (axis, texts(values))).collect())
}

impl Scalar {
    fn text(self) -> String {
        match self {
            Scalar::Text(text) => text,
            Scalar::Number(number) => number.to_string(),
            Scalar::Truth(truth) => truth.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_names_cells_as_axes_do() {
        let goal: Goal = serde_json::from_str(
            r#"{"goal": "g", "variant": "v", "figures": ["p50"], "limit": 1.5, "cells": {"services": [1, 1000], "load": ["new"]}}"#,
        )
        .expect("a goal");
        let cell = |services: &str, load: &str| {
            IndexMap::from([("services".into(), services.into()), ("load".into(), load.into())])
        };
        assert!(goal.is_for(&cell("1000", "new")));
        assert!(!goal.is_for(&cell("10", "new")) && !goal.is_for(&cell("1", "kept")));
    }
}
