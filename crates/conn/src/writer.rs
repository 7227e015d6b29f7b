//! When the writing end of a direction begins a stretch of ring; when and why it ends one.
//!
//! [`Tx`] knows how to do that, this module decides. The caller supplies the time, the reader's pace and the test aid. A reason
//! in an answer means that the direction has returned to the kernel, so that the caller can count it.

use crate::around::Around;
use crate::stall::Stall;
use crate::tx::Tx;
use sidestep_abi::Reason;
use sidestep_ring::{Half, PeerViolation, space};

/// The test aid: a stretch of ring ends after this many bytes, and the next one begins this many bytes later. With the aid, the
/// writer behaves as if there were a hint after each write. So a writer need not check at each write whether the aid is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flip(u64);

impl Flip {
    /// Without the aid.
    pub const NEVER: Flip = Flip(u64::MAX);

    /// 0: never.
    pub fn every(bytes: u64) -> Flip {
        if bytes == 0 { Flip::NEVER } else { Flip(bytes) }
    }
}

/// The writing end, with the rules of when.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// How stretches begin and end.
    pub tx: Tx,
    /// The reader's pace, and when a new stretch may begin.
    stall: Stall,
    flip: Flip,
    /// Position at which the present stretch began.
    stretch_from: u64,
    /// Value of [`Tx::ended`] when this end last counted a return.
    ended_seen: u32,
    /// Time of the next question to the kernel whether the peer still lives.
    ask_at: u64,
    /// The peer has died with bytes of this end unread, as far as this end can tell.
    died_unread: bool,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::native(0, Flip::NEVER)
    }
}

/// Times for a writer whose ring is full.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time, in any unit, from any moment on.
    pub now: u64,
    /// The reader's position, by either carrier, as its words say.
    pub read: u64,
    /// How long a reader may stay where it is, in units of `now`.
    pub patience: u64,
}

/// Result of a look of a writer whose ring was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// There is enough space to go on.
    Enough,
    /// There is too little space to wake a writer for, perhaps none: the writer waits.
    Little {
        /// Number of bytes that fit.
        room: usize,
    },
    /// The reader has left the ring.
    Left(Option<Reason>),
    /// The reader has stalled, and the stretch has ended.
    Stalled(Option<Reason>),
}

impl Writer {
    /// A direction to which the program has written `pos` bytes, all by kernel.
    pub fn native(pos: u64, flip: Flip) -> Writer {
        let tx = if flip == Flip::NEVER { Tx::native(pos) } else { Tx::native(pos).restless() };
        Writer { tx, stall: Stall::default(), flip, stretch_from: 0, ended_seen: 0, ask_at: 0, died_unread: false }
    }

    /// The same direction; its end looks at the reader's word at each write.
    #[must_use]
    pub fn restless(self) -> Writer {
        Writer { tx: self.tx.restless(), ..self }
    }

    /// Bytes of the present stretch; 0: the kernel carries.
    pub fn in_stretch(&self) -> u64 {
        if self.tx.in_ring() { self.tx.pos() - self.stretch_from } else { 0 }
    }

    /// Whether a stretch may begin at the present position, according to the direction's words and the last stalls. After this,
    /// the caller looks for holds.
    pub fn may_begin(&mut self, half: Half) -> bool {
        self.stall.permits(self.tx.pos()) && self.tx.may_begin(half)
    }

    /// Whether the kernel's count permits a ring. `written`: number of bytes of this direction that the kernel has had; None:
    /// it is closing. Err: why not; a count that differs means that somebody else writes to the socket.
    pub fn fits(&self, written: Option<u64>) -> Result<(), Reason> {
        match written {
            // The kernel has never seen the bytes that went by ring.
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

    /// Most bytes that one step may give to the kernel.
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

    /// Ends the stretch for this reason; None: as part of ending the stream.
    pub fn end(&mut self, half: Half, around: Around, reason: Option<Reason>) -> Result<Option<Reason>, PeerViolation> {
        if !self.tx.in_ring() {
            return Ok(None);
        }
        if around.peer_is_shut {
            self.tx.end_in_ring(half)?;
        } else {
            self.tx.end(half)?;
        }
        self.ended_seen = self.tx.ended;
        Ok(reason.inspect(|reason| self.hold_back(*reason)))
    }

    /// Unread bytes of an ended stretch are to be sent. Those that the peer does not take by kernel stay in the ring.
    pub fn spare_copies(&mut self, half: Half, around: Around) -> Result<(), PeerViolation> {
        if around.peer_is_shut { self.tx.leave_in_ring(half) } else { Ok(()) }
    }

    /// Acts on hints: the direction goes back to the kernel if the reader has left the ring, or if the stretch is to end, for the
    /// reason that `wanted_back` chooses. `around`: called after the hints have been noted.
    pub fn heed(&mut self, half: Half, around: impl FnOnce() -> Around) -> Result<Option<Reason>, PeerViolation> {
        self.tx.note_hints(half);
        self.tx.poll(half)?;
        let around = around();
        match self.wanted_back(half, around) {
            Some(reason) => self.end(half, around, Some(reason)),
            None => Ok(self.note_end(around)),
        }
    }

    /// Whether the stretch is to end.
    pub fn is_wanted_back(&self, half: Half, around: Around) -> bool {
        self.wanted_back(half, around).is_some()
    }

    /// Why the stretch is to end.
    fn wanted_back(&self, half: Half, around: Around) -> Option<Reason> {
        if !self.tx.in_ring() {
            return None;
        }
        let unwanted = half.is_unwanted().then_some(Reason::PeerClosing);
        let flips = self.tx.pos() - self.stretch_from >= self.flip.0;
        around.hold.or(unwanted).or(flips.then_some(Reason::Flip))
    }

    /// If the reader has ended the stretch: why, as far as this end knows.
    pub fn note_end(&mut self, around: Around) -> Option<Reason> {
        if self.tx.ended == self.ended_seen {
            return None;
        }
        self.ended_seen = self.tx.ended;
        // If the peer has closed its end, the end of its stretch is no return to the kernel.
        let reason = (!around.peer_ended).then_some(around.hold.unwrap_or(Reason::PeerClosing));
        reason.inspect(|reason| self.hold_back(*reason))
    }

    /// The direction has returned to the kernel: sets when it may try a ring again.
    fn hold_back(&mut self, reason: Reason) {
        let pos = self.tx.pos();
        match self.flip {
            // As soon as the hold ends.
            _ if matches!(reason, Reason::Detached | Reason::NeverWaited) => self.stall.resume_after(pos, 0),
            Flip::NEVER => self.stall.hold_back(pos),
            Flip(every) => self.stall.resume_after(pos, every),
        }
    }

    /// The ring is full: announces that this end waits for space, and looks once more.
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
            return Ok(Space::Little { room: half.size.saturating_sub(self.tx.unread() as usize) });
        }
        self.stall.spill(self.tx.pos(), self.tx.pos() - self.stretch_from, half.size as u64);
        self.end(half, around, Some(Reason::Stalled)).map(Space::Stalled)
    }

    /// The peer has ended without a word while bytes of this end are to be sent: it was killed.
    pub fn note_death(&mut self) {
        self.died_unread = true;
    }

    /// Whether the peer, which has ended without a word, has left bytes of this end unread.
    pub fn has_died_unread(&mut self, half: Half) -> bool {
        let _ = self.tx.poll(half);
        let _ = self.tx.heed_deputy(half); // bytes that the peer has sent to itself in this end's place
        self.died_unread || self.tx.unread() > 0
    }

    /// Whether a writer that waits for space may go on, according to the last look.
    pub fn has_enough_space(&self, half: Half) -> bool {
        space::is_enough(self.tx.unread() as usize, half.size)
    }

    /// Whether to ask the kernel now whether the peer still lives. `sign`: there is a sign that it does not. `again`: time
    /// until the next question. No question is needed after a wait in which the kernel would have reported the end.
    #[inline]
    pub fn is_to_ask(&mut self, now: u64, sign: bool, again: u64, was_waited_for: impl FnOnce() -> bool) -> bool {
        if now < self.ask_at && !sign {
            return false;
        }
        self.ask_at = now + again;
        sign || !was_waited_for()
    }
}
