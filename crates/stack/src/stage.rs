//! A connection on its way to the stack, and back.

use crate::carried::Carried;
use crate::cause::Cause;
use crate::pace::KernelPace;
use crate::program::Program;
use crate::record::Record;
use crate::subject::Subject;
use sidestep_device::path::Path;

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
    /// It goes back for this reason, since this time. While the kernel has no way to the peer, it stays here.
    Returning(Box<Carried>, Cause, u64),
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
    /// Looks in vain at an assigned or observed connection.
    pub looks: u32,
    /// When it was taken, if it is carried.
    pub taken_at: Option<u64>,
    /// How long its messages are while the kernel carries it.
    pub pace: KernelPace,
    /// Looks in a row that have found them long.
    pub long_looks: u32,
    /// What its socket has received since it is observed.
    pub arrivals: Arrivals,
    /// Its packets did not come by the device once: that has been counted.
    pub is_unseen: bool,
}

/// What is known of an observed connection whose packets do not come by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Nothing yet.
    Uncounted,
    /// At an earlier look its socket had received so many bytes.
    Counted(u64),
    /// Its socket has received more since then, and none of that by the device.
    Elsewhere,
}

impl Conn {
    pub fn new(subject: Subject, place: (u32, u32, u32), program: Program, record: Record) -> Conn {
        let number = record.number;
        let stage = Stage::Assigned(program, record, 0);
        Conn {
            subject,
            place,
            number,
            stage,
            held: Vec::new(),
            is_ending: false,
            returns: 0,
            looks: 0,
            taken_at: None,
            pace: KernelPace::default(),
            long_looks: 0,
            arrivals: Arrivals::Uncounted,
            is_unseen: false,
        }
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

/// Frames that are kept for a connection while it is being taken or given back. The peer sends further ones again.
pub const HELD: usize = 256;
/// Microseconds after which an executor counts as held up: frames are kept for no longer.
pub const LATE: u64 = 300_000;

/// A connection of the worker.
#[expect(clippy::large_enum_variant, reason = "nearly all are here, and each frame needs one")]
pub enum Entry {
    /// The worker has it.
    Here(Conn),
    /// An executor has it ([`crate::calls`]), and gives it back.
    Away(Absence),
}

/// What happens to a connection while an executor has it.
pub struct Absence {
    /// As in [`Conn`].
    pub held: Vec<Vec<u8>>,
    since: u64,
    /// Its path as it left, and whether that may have changed.
    pub path: Path,
    pub has_changed: bool,
    /// How many changes of paths the worker had heard of before: an executor may resolve another path.
    pub changes: u64,
    /// It is due once it is back.
    pub is_due: bool,
    /// Why it ends once it is back, if it does.
    pub end: Option<Cause>,
    is_late: bool,
}

impl Absence {
    /// Of a connection that leaves now.
    pub fn of(conn: &mut Conn, since: u64, changes: u64) -> Absence {
        let (held, path) = (std::mem::take(&mut conn.held), conn.subject.path);
        Absence { held, since, path, has_changed: false, changes, is_due: false, end: None, is_late: false }
    }

    /// A frame has arrived.
    pub fn hold(&mut self, frame: &[u8]) {
        if self.held.len() < HELD && !self.is_late {
            self.held.push(frame.to_vec());
        }
    }

    /// The connection is due.
    pub fn note_due(&mut self, now: u64) {
        self.is_due = true;
        if now >= self.since + LATE {
            (self.is_late, self.held) = (true, Vec::new());
        }
    }

    /// The connection is to end. A reason for good counts more than one that passes.
    pub fn note_end(&mut self, cause: Cause) {
        if self.end.as_ref().is_none_or(Cause::passes) {
            self.end = Some(cause);
        }
    }
}
