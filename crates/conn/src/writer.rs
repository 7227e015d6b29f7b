//! When the writing end of a direction begins a stretch of ring, and when and why it ends one.
//!
//! [`Tx`] knows how; this knows when. Time, the reader's pace and the test aid are values that the caller gives. A reason in an
//! answer says that the direction has returned to the kernel, for the caller to count.

use crate::around::Around;
use crate::stall::Stall;
use crate::tx::Tx;
use sidestep_abi::Reason;
use sidestep_ring::{Half, PeerViolation, space};

/// The test aid: a stretch of ring ends after so many bytes, and the next one begins so many bytes later. The writer then behaves
/// as if the reader hinted after each write, so that other writers need not ask whether the aid is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flip(u64);

impl Flip {
    pub const NEVER: Flip = Flip(u64::MAX);

    /// 0: never.
    pub fn every(bytes: u64) -> Flip {
        if bytes == 0 { Flip::NEVER } else { Flip(bytes) }
    }
}

/// The writing end with its rules.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    pub tx: Tx,
    /// The reader's pace, and when a new stretch may begin.
    stall: Stall,
    flip: Flip,
    /// Where the present stretch began.
    stretch_from: u64,
    /// [`Tx::ended`] when this end last counted a return.
    ended_seen: u32,
    /// When the kernel is to be asked next whether the peer still lives.
    ask_at: u64,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::native(0, Flip::NEVER)
    }
}

/// What time it is for a writer whose ring is full.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub now: u64,
    /// The reader's position, by either carrier, as the reader says.
    pub read: u64,
    /// How long a reader may stay where it is, in units of `now`.
    pub patience: u64,
}

/// What a writer finds that has found its ring full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// So much that it may go on.
    Enough,
    /// Too little to wake a writer for, and perhaps none: it waits.
    Little { is_some: bool },
    /// The reader has left the ring.
    Left(Option<Reason>),
    /// The reader has stalled, and the stretch has ended.
    Stalled(Option<Reason>),
}

impl Writer {
    /// A direction to which the program has written `pos` bytes, all by kernel.
    pub fn native(pos: u64, flip: Flip) -> Writer {
        let tx = if flip == Flip::NEVER { Tx::native(pos) } else { Tx::native(pos).restless() };
        Writer { tx, stall: Stall::default(), flip, stretch_from: 0, ended_seen: 0, ask_at: 0 }
    }

    /// Whether a stretch may begin right here, as far as the direction's own words and the last stalls decide. The caller looks
    /// after that whether somebody holds the connection.
    pub fn may_begin(&mut self, half: Half) -> bool {
        self.stall.permits(self.tx.pos()) && self.tx.may_begin(half)
    }

    /// `written`: bytes that the kernel has had of this direction, unless it is closing. Why no ring may carry, if the kernel
    /// counts otherwise: somebody writes to the socket besides.
    pub fn fits(&self, written: Option<u64>) -> Result<(), Reason> {
        match written {
            // What went by ring the kernel has never seen.
            Some(n) if n == self.tx.socket => Ok(()),
            Some(_) => Err(Reason::CountMismatch),
            None => Err(Reason::PeerClosing),
        }
    }

    /// Begins a stretch, as [`Tx::begin`].
    pub fn begin(&mut self, half: Half) -> Result<bool, PeerViolation> {
        self.stretch_from = self.tx.pos();
        self.tx.begin(half)
    }

    /// Bytes that one step may give to the kernel.
    pub fn kernel_piece(&self) -> usize {
        self.flip.0 as usize
    }

    /// The caller has copied `n` bytes into the ring.
    #[inline]
    pub fn put_ring(&mut self, half: Half, n: usize) -> Result<(), PeerViolation> {
        self.tx.put_ring(half, n)?;
        self.stall.is_over();
        Ok(())
    }

    /// The kernel takes no more.
    pub fn kernel_is_full(&mut self) {
        self.stall.kernel_is_full(self.tx.pos());
    }

    /// Ends the stretch for this reason, or without one as a part of ending the stream.
    pub fn end(&mut self, half: Half, around: Around, reason: Option<Reason>) -> Result<Option<Reason>, PeerViolation> {
        if !self.tx.in_ring() {
            return Ok(None);
        }
        // A peer that has ended both sides, and has said so, reads what is in the ring, and takes nothing by kernel.
        if around.peer_ended && half.is_unwanted() {
            self.tx.end_without_copies(half)?;
        } else {
            self.tx.end(half)?;
        }
        self.ended_seen = self.tx.ended;
        Ok(reason.inspect(|reason| self.hold_back(*reason)))
    }

    /// Looks at what was hinted: the reader has left the ring, or somebody wants the stretch to end, which it does.
    /// `around`: asked for after the hints have been noted.
    pub fn heed(&mut self, half: Half, around: impl FnOnce() -> Around) -> Result<Option<Reason>, PeerViolation> {
        self.tx.note_hints(half);
        self.tx.poll(half)?;
        let around = around();
        match self.wanted_back(half, around) {
            Some(reason) => self.end(half, around, Some(reason)),
            None => Ok(self.note_end(around)),
        }
    }

    fn wanted_back(&self, half: Half, around: Around) -> Option<Reason> {
        if !self.tx.in_ring() {
            return None;
        }
        let unwanted = half.is_unwanted().then_some(Reason::PeerClosing);
        let flips = self.tx.pos() - self.stretch_from >= self.flip.0;
        around.hold.or(unwanted).or(flips.then_some(Reason::Flip))
    }

    /// If the reader has ended the stretch: why, as far as can be told.
    pub fn note_end(&mut self, around: Around) -> Option<Reason> {
        if self.tx.ended == self.ended_seen {
            return None;
        }
        self.ended_seen = self.tx.ended;
        // What a peer left that has closed its end is no return to the kernel.
        let reason = (!around.peer_ended).then_some(around.hold.unwrap_or(Reason::PeerClosing));
        reason.inspect(|reason| self.hold_back(*reason))
    }

    /// The direction is back on the kernel: when it may try a ring again.
    fn hold_back(&mut self, reason: Reason) {
        let pos = self.tx.pos();
        match self.flip {
            // As soon as who wanted it allows.
            _ if matches!(reason, Reason::Detached | Reason::NeverWaited) => self.stall.resume_after(pos, 0),
            Flip::NEVER => self.stall.hold_back(pos),
            Flip(every) => self.stall.resume_after(pos, every),
        }
    }

    /// The ring is full: announces that this end waits, and looks once more.
    pub fn find_space(&mut self, half: Half, around: Around, pace: Pace) -> Result<Space, PeerViolation> {
        space::wish(half.writer);
        self.tx.poll(half)?;
        if !self.tx.in_ring() {
            return Ok(Space::Left(self.note_end(around)));
        }
        if self.has_enough_space(half) {
            return Ok(Space::Enough);
        }
        if !self.stall.is_full(pace.now, pace.read, pace.patience) {
            return Ok(Space::Little { is_some: self.tx.unread() < half.size as u64 });
        }
        self.stall.spill(self.tx.pos(), self.tx.pos() - self.stretch_from, half.size as u64);
        self.end(half, around, Some(Reason::Stalled)).map(Space::Stalled)
    }

    /// Whether a writer that waits for space may go on, as far as this end knows.
    pub fn has_enough_space(&self, half: Half) -> bool {
        space::is_enough(self.tx.unread() as usize, half.size)
    }

    /// Whether the kernel is to be asked now whether the peer still lives. `sign`: something says that it does not. `again`: for
    /// how long not to ask after that. A wait that the kernel would have told of an end spares the question.
    #[inline]
    pub fn is_to_ask(&mut self, now: u64, sign: bool, again: u64, was_waited_for: impl FnOnce() -> bool) -> bool {
        if now < self.ask_at && !sign {
            return false;
        }
        self.ask_at = now + again;
        sign || !was_waited_for()
    }
}
