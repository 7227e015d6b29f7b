//! What the worker does while nothing is to be done.

use std::time::Duration;

/// How the worker waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Wait {
    /// It never sleeps, and takes a whole processor.
    Busy,
    /// It looks on for a moment, and then sleeps: no processor time when idle.
    #[default]
    Adaptive,
    /// It sleeps at once.
    Sleep,
}

impl Wait {
    /// For how long it looks on before it sleeps.
    pub fn spins(self) -> Duration {
        match self {
            Wait::Busy => Duration::MAX,
            Wait::Adaptive => Duration::from_micros(50),
            Wait::Sleep => Duration::ZERO,
        }
    }
}
