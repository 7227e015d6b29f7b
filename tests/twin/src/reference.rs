//! The kernel's behaviour. It decides how long a run with Sidestep is waited for, and never what the run must answer.

use std::collections::{BTreeMap, HashMap};

use crate::trace::Line;

#[derive(Default)]
pub struct Reference {
    known: bool,
    blocks: HashMap<usize, bool>,
    over: BTreeMap<(usize, u8), Vec<usize>>,
}

impl Reference {
    pub fn new(lines: &[Line]) -> Reference {
        let mut it = Reference { known: true, ..Reference::default() };
        for line in lines {
            match line.after {
                None => drop(it.blocks.insert(line.step, line.blocks)),
                Some(after) => it.over.entry((after, line.at)).or_default().push(line.step),
            }
        }
        it
    }

    /// Whether the call of a step blocked; None: unknown.
    pub fn blocks(&self, step: usize) -> Option<bool> {
        if self.known { self.blocks.get(&step).copied() } else { None }
    }

    /// Steps of an actor whose calls returned after that step.
    pub fn over_after(&self, step: usize, at: u8) -> Vec<usize> {
        self.over.get(&(step, at)).cloned().unwrap_or_default()
    }
}
