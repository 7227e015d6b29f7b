//! Whether a trial counts, or other load disturbed it.

use crate::result::{Disturbance, Usage};

/// Limits for other load, as parts of the machine's whole capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calm {
    /// CPU time that the hypervisor gave to others.
    pub steal: f64,
    /// CPU time of processes that are not the scenario's.
    pub foreign: f64,
}

/// A trial's noise is some percent, and other load must take less. Steal takes time from running processes, at the worst moment,
/// such as while a lock is held. Foreign processes use idle processors first. The services of a desktop or a node need 1 or 2 %,
/// which are in both trials of a round.
impl Default for Calm {
    fn default() -> Self {
        Calm { steal: 0.02, foreign: 0.05 }
    }
}

impl Calm {
    /// None: it was calm enough, or the trial was too short to tell.
    pub fn disturbance(&self, usage: &Usage, cores: usize) -> Option<Disturbance> {
        let capacity = usage.seconds * cores as f64;
        let (steal, foreign) = (usage.steal / capacity, usage.foreign.unwrap_or(0.0) / capacity);
        (capacity > 0.0 && (steal > self.steal || foreign > self.foreign)).then_some(Disturbance { steal, foreign })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steal: f64, foreign: Option<f64>) -> Option<Disturbance> {
        Calm::default().disturbance(&Usage { seconds: 10.0, steal, foreign, ..Usage::default() }, 4)
    }

    #[test]
    fn others_disturb_above_a_part_of_the_capacity() {
        assert_eq!(of(0.4, Some(1.6)), None);
        assert_eq!(of(0.4, None), None);
        assert_eq!(of(1.0, None), Some(Disturbance { steal: 0.025, foreign: 0.0 }));
        assert_eq!(of(0.0, Some(4.0)), Some(Disturbance { steal: 0.0, foreign: 0.1 }));
        assert_eq!(Calm::default().disturbance(&Usage::default(), 4), None);
    }
}
