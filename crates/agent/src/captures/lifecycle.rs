//! How far the controller of captured pods is.

/// Each stage follows the one before it, and none comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What is wanted is still being told: nothing is written.
    Waiting,
    /// What was wanted at the beginning is being done.
    Begun,
    /// All of that is done, or cannot be done for now.
    Settled,
    /// Nothing is hidden: what an earlier agent has left besides goes when there is nothing else to do.
    Completing,
    /// The tables hold only what is wanted.
    Complete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Everything that is wanted has been told, as far as it is known.
    Begin,
    /// The first rest: everything that was told is done.
    Settle,
    /// Everything can be read: what is not wanted may go.
    NothingHidden,
    /// It has gone.
    Complete,
}

impl Stage {
    pub fn after(self, step: Step) -> Stage {
        match (self, step) {
            (Stage::Waiting, Step::Begin) => Stage::Begun,
            (Stage::Begun, Step::Settle) => Stage::Settled,
            (Stage::Settled, Step::NothingHidden) => Stage::Completing,
            (Stage::Completing, Step::Complete) => Stage::Complete,
            // The node tells each of its steps once, and the last one only when this has reported to be settled.
            (stage, step) => unreachable!("{step:?} does not follow {stage:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 4] = [Step::Begin, Step::Settle, Step::NothingHidden, Step::Complete];

    #[test]
    fn the_steps_lead_from_nothing_to_everything() {
        let stages: Vec<Stage> = STEPS
            .iter()
            .scan(Stage::Waiting, |stage, step| {
                *stage = stage.after(*step);
                Some(*stage)
            })
            .collect();
        assert_eq!(stages, [Stage::Begun, Stage::Settled, Stage::Completing, Stage::Complete]);
    }

    #[test]
    #[should_panic(expected = "NothingHidden does not follow Begun")]
    fn nothing_is_complete_before_it_is_settled() {
        let _ = Stage::Begun.after(Step::NothingHidden);
    }
}
