//! A connection on its way to the stack.

use crate::carried::Carried;
use crate::cause::Cause;
use crate::pace::KernelPace;
use crate::program::Program;
use crate::record::Record;
use crate::subject::Subject;

/// Where a connection is.
pub enum Stage {
    /// The kernel carries it; it may be taken from this time on, once the program reads rings.
    Assigned(Program, Record, u64),
    /// Its packets are looked for at the device. The kernel still gets them.
    Observed(Program, Record),
    /// Its packets are diverted. The numbers: of the grace period after which no run of the device's program is under way that began
    /// before; and the time since when.
    Diverted(Program, Record, u64, u64),
    /// The program is to enter both rings. The number: the time since when.
    Entering(Program, Record, u64),
    /// The stack carries it.
    Carried(Box<Carried>),
    /// It is to go back for this reason, since this time, but the kernel has no way to the peer at present.
    Stranded(Box<Carried>, Cause, u64),
    /// Within a change of stages only.
    Over,
}

pub struct Conn {
    pub subject: Subject,
    /// Link, side and slot, as the broker numbers them.
    pub place: (u32, u32, u32),
    /// Of its record.
    pub number: u32,
    pub stage: Stage,
    /// Frames that have arrived before the connection was taken, and those that the kernel is to judge.
    pub held: Vec<Vec<u8>>,
    /// A frame is held that is the reason to give the connection back.
    pub is_ending: bool,
    /// How often it has gone back to the kernel in quick succession.
    pub returns: u32,
    /// Looks at an assigned connection in vain.
    pub looks: u32,
    /// When it was taken, if it is carried.
    pub taken_at: Option<u64>,
    /// How long its messages are while the kernel carries it.
    pub pace: KernelPace,
}

impl Conn {
    pub fn new(subject: Subject, place: (u32, u32, u32), program: Program, record: Record) -> Conn {
        let number = record.number;
        let stage = Stage::Assigned(program, record, 0);
        let (held, pace) = (Vec::new(), KernelPace::default());
        Conn { subject, place, number, stage, held, is_ending: false, returns: 0, looks: 0, taken_at: None, pace }
    }

    /// Replaces a stage before the taking by the one that follows.
    pub fn change(&mut self, next: impl FnOnce(Program, Record) -> Stage) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Assigned(program, record, _)
            | Stage::Observed(program, record)
            | Stage::Diverted(program, record, ..)
            | Stage::Entering(program, record, _) => next(program, record),
            other => other,
        };
    }
}
