//! A direction of a connection in one thread, with both ends, and the steps of everybody who may end a stretch.
#![allow(dead_code)] // each test uses its part

use super::conn_direction::Direction;
use super::input::Input;
use sidestep_abi::link::FROZEN;
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_conn::{PeerViolation, Rx, Tx};

/// Bytes of the ring.
pub const SIZE: usize = 16;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Write(usize),
    Read(usize),
    Begin,
    /// The writer ends the stretch.
    End,
    /// The same without copies for a reader that is in the ring. Bytes that the reader leaves there then are lost.
    EndAlone,
    /// The reader takes nothing more from the kernel than what it has there.
    EnterAhead,
    ReaderFreeze,
    BrokerFreeze,
    Refuse,
    /// The broker freezes between the next copy to or from the ring and its commit.
    Ambush,
    /// The reader no longer wants rings, or wants them again.
    Ready(bool),
    /// The writer looks, and the kernel takes at most so many bytes from it.
    Look(usize),
    Discard,
    /// The reader, which has left the ring, sends at most so many bytes to itself on the writer's behalf.
    Deputy(usize),
}

impl Step {
    /// A step as random bytes choose it. [`Step::EndAlone`] is none of them.
    pub fn from_bytes(bytes: &mut Input) -> Step {
        match bytes.below(16) {
            0..=4 => Step::Write(1 + bytes.below(24)),
            5..=8 => Step::Read(1 + bytes.below(24)),
            9 | 10 => Step::Begin,
            11 if bytes.below(6) == 0 => Step::EnterAhead,
            11 => Step::End,
            12 => Step::ReaderFreeze,
            13 => Step::BrokerFreeze,
            14 if bytes.below(2) == 0 => Step::Refuse,
            14 => Step::Ambush,
            _ => match bytes.below(4) {
                0 => Step::Ready(bytes.below(4) > 0),
                1 if bytes.below(2) == 0 => Step::Deputy(bytes.below(8)),
                1 => Step::Discard,
                2 => Step::Look(bytes.below(8)),
                _ => Step::Look(usize::MAX),
            },
        }
    }

    /// The reader, or the broker on its behalf, leaves the ring.
    pub fn is_leaving(&self) -> bool {
        matches!(self, Step::ReaderFreeze | Step::BrokerFreeze | Step::Refuse | Step::Ambush)
    }
}

pub struct World {
    pub direction: Direction,
    pub tx: Tx,
    pub rx: Rx,
    ambush: bool,
}

impl World {
    pub fn new() -> World {
        World::with(Direction::new(SIZE))
    }

    /// For a test that writes anything into the words.
    pub fn hostile() -> World {
        World::with(Direction::hostile(SIZE))
    }

    fn with(direction: Direction) -> World {
        World { direction, tx: Tx::default(), rx: Rx::default(), ambush: false }
    }

    /// One step. Err: one end has noticed a violation, and the real library would end the connection.
    pub fn apply(&mut self, step: Step) -> Result<(), PeerViolation> {
        let before = (self.tx.pos(), self.rx.pos());
        let result = self.make(step);
        assert!(self.tx.pos() >= before.0 && self.rx.pos() >= before.1, "a stream does not go back");
        result
    }

    fn make(&mut self, step: Step) -> Result<(), PeerViolation> {
        let World { direction, tx, rx, ambush } = self;
        let (direction, half) = (&*direction, direction.half());
        let meanwhile = || {
            if core::mem::take(ambush) {
                half.freeze();
            }
        };
        match step {
            Step::Write(n) => direction.write(tx, n, meanwhile).map(drop),
            Step::Read(n) => direction.read(rx, n, meanwhile).map(drop),
            Step::Begin => direction.begin(tx).map(drop),
            Step::End => tx.end(half),
            Step::EndAlone => tx.end_without_copies(half),
            Step::EnterAhead => {
                half.withdraw_readiness();
                rx.enter_ahead(half)
            }
            Step::ReaderFreeze => rx.freeze(half).map(|()| half.hint_freeze()),
            Step::BrokerFreeze => {
                half.freeze();
                Ok(())
            }
            Step::Refuse if !rx.in_ring() => rx.refuse(half).map(|()| half.hint_freeze()),
            Step::Refuse => Ok(()),
            Step::Ambush => {
                *ambush = true;
                Ok(())
            }
            Step::Ready(true) => {
                half.set_ready();
                Ok(())
            }
            Step::Ready(false) => {
                half.withdraw_readiness();
                Ok(())
            }
            Step::Look(most) => direction.serve(tx, most),
            Step::Discard => direction.discard(rx).map(drop),
            Step::Deputy(most) => direction.deputy(rx, most).map(|claimed| assert!(claimed, "in one thread")),
        }
    }

    /// Writes a value of a hostile peer into one of the words.
    pub fn violate(&self, bytes: &mut Input) {
        let near = [0, self.tx.pos(), self.rx.pos(), self.rx.pos() | FROZEN, u64::MAX, FROZEN];
        let value = bytes.hostile(&near);
        let Direction { writer, reader, reading_side, .. } = &self.direction;
        match bytes.below(13) {
            0 => writer.tail.store(value, Relaxed),
            1 => writer.base.store(value, Relaxed),
            2 => writer.ring_from.store(value, Relaxed),
            3 => writer.epoch.store(value as u32, Relaxed),
            4 => reading_side.ready.store(value as u32, Relaxed),
            5 => reading_side.seen_epoch.store(value as u32, Relaxed),
            6 => reading_side.froze.store(value as u32, Relaxed),
            7 => writer.fin.store(value as u32, Relaxed),
            8 => writer.resume.store(value, Relaxed),
            9 => writer.copied.store(value, Relaxed),
            10 => writer.sent_to.store(value, Relaxed),
            11 => writer.complete.store(value as u32, Relaxed),
            _ => reader.head.store(value, Relaxed),
        }
    }

    /// The reader reads on alone: everything must be there.
    pub fn read_all(&mut self) {
        self.direction.read_all(&self.tx, &mut self.rx);
    }

    /// No more writing: everything must arrive.
    pub fn drain(&mut self) {
        self.direction.drain(&mut self.tx, &mut self.rx);
    }
}
