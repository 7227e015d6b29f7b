//! A connection on its way to the stack.

use crate::carried::Carried;
use crate::program::Program;
use crate::record::Record;
use crate::subject::Subject;

/// Where a connection is.
pub enum Stage {
    /// The program does not read rings yet.
    Assigned(Program, Record),
    /// Its packets are diverted; until this grace period has passed, runs of the device's program are under way that began before.
    /// Since this time.
    Diverted(Program, Record, u64, u64),
    /// The program is to enter both rings. Since this time.
    Entering(Program, Record, u64),
    /// The stack carries it.
    Carried(Box<Carried>),
    /// The program goes on without the stack.
    Over,
}

pub struct Conn {
    pub subject: Subject,
    /// Link, side and slot, as the broker numbers them.
    pub place: (u32, u32, u32),
    /// Of its record.
    pub number: u32,
    pub stage: Stage,
    /// Frames that have arrived before the connection was taken.
    pub held: Vec<Vec<u8>>,
}

impl Conn {
    /// Replaces a stage before the taking by the one that follows.
    pub fn change(&mut self, next: impl FnOnce(Program, Record) -> Stage) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Assigned(program, record)
            | Stage::Diverted(program, record, ..)
            | Stage::Entering(program, record, _) => next(program, record),
            other => other,
        };
    }
}
