//! A result without trials.

use super::order::Order;
use crate::result::{About, Cell, Ended, FORMAT, Machine, Run};
use crate::scenario::Values;
use indexmap::IndexMap;
use jiff::Timestamp;

/// What is known of a run before its first trial.
pub fn blank(order: &Order, cells: &[Values]) -> Run {
    let scenario = &order.scenario;
    Run {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        command: order.command.clone(),
        begun: Timestamp::now(),
        seconds: 0.0,
        ended: Ended::Interrupted,
        seed: order.seed,
        machine: Machine::detect(),
        programs: IndexMap::new(),
        scenario: About {
            name: scenario.name.clone(),
            about: scenario.about.clone(),
            text: order.text.clone(),
            judged: scenario.design.judge.clone(),
            precision: scenario.design.precision,
            confidence: scenario.design.confidence,
            goals: scenario.goals.clone(),
            published: scenario.published.clone(),
        },
        variants: Vec::new(),
        cells: cells
            .iter()
            .map(|values| Cell {
                values: values.clone(),
                variants: Vec::new(),
                trials: Vec::new(),
                profiles: Vec::new(),
            })
            .collect(),
        carried: IndexMap::new(),
        notes: Vec::new(),
        wrong: Vec::new(),
    }
}
