//! The stages of the controller of captured pods.

/// Each stage follows the one before it; there is no way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The sources are still being read: nothing is written.
    Waiting,
    /// What was wanted at the beginning is being done.
    Begun,
    /// All of that is done, or cannot be done for now.
    Settled,
    /// Everything can be read: what an earlier agent has left besides is removed once there is nothing else to do.
    Completing,
    /// The tables hold only what is wanted.
    Complete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All sources have been read, as far as possible.
    Begin,
    /// The first rest: everything that was reported is done.
    Settle,
    /// Everything can be read: what is not wanted may be removed.
    NothingHidden,
    /// It has been removed.
    Complete,
}

impl Stage {
    pub fn after(self, step: Step) -> Stage {
        match (self, step) {
            (Stage::Waiting, Step::Begin) => Stage::Begun,
            (Stage::Begun, Step::Settle) => Stage::Settled,
            (Stage::Settled, Step::NothingHidden) => Stage::Completing,
            (Stage::Completing, Step::Complete) => Stage::Complete,
            // The node sends each step once, and the last one only after this controller has reported Settled.
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
