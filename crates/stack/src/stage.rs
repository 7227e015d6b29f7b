//! A connection on its way to the stack.

use crate::carried::Carried;
use crate::program::Program;
use crate::subject::Subject;

/// Where a connection is.
pub enum Stage {
    /// The program does not read rings yet.
    Assigned(Program),
    /// Its packets are diverted; runs of the device's program that began before are not over yet.
    Diverted {
        program: Program,
        grace: u64,
        since: u64,
    },
    /// The program is to enter both rings.
    Entering {
        program: Program,
        since: u64,
    },
    Carried(Box<Carried>),
    /// Within [`Stage::replace`] only.
    Moving,
}

impl Stage {
    /// Replaces a stage before the taking by the one that follows.
    pub fn replace(&mut self, next: impl FnOnce(Program) -> Stage) {
        *self = match std::mem::replace(self, Stage::Moving) {
            Stage::Assigned(program) | Stage::Diverted { program, .. } | Stage::Entering { program, .. } => {
                next(program)
            }
            other => other,
        };
    }
}

pub struct Conn {
    pub subject: Subject,
    /// Link, side and slot, as the broker numbers them.
    pub place: (u32, u32, u32),
    pub stage: Stage,
    /// Frames that have arrived before the connection was taken.
    pub held: Vec<Vec<u8>>,
}
