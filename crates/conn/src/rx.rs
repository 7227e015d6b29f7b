//! The reading end of a direction.

use crate::Half;
use sidestep_abi::sync::Ordering;
use sidestep_ring::{Advance, Input, Lie, PATIENCE};

/// Where to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// From the kernel, at most this many bytes.
    Kernel(u64),
    /// From the ring: this many bytes are there (0: none yet).
    Ring(usize),
}

/// State of the reading end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rx {
    input: Input,
    in_ring: bool,
    /// Where the last stretch ended, and what was published then. Should the writer die before it has sent the
    /// bytes between by kernel, they are still in the ring.
    drain_from: u64,
    drain_to: u64,
    /// Position up to which the program has been told that bytes are there (MSG_PEEK, FIONREAD).
    told: u64,
    /// Bytes read from the kernel.
    pub kernel: u64,
    /// Bytes read from rings.
    pub ring: u64,
    /// Stretches that ended.
    pub ended: u32,
}

impl Rx {
    /// A direction of which the program has read `pos` bytes, all by kernel.
    pub fn native(pos: u64) -> Rx {
        Rx { input: Input { pos, epoch: 0 }, kernel: pos, ..Rx::default() }
    }

    /// Bytes of this direction delivered so far.
    pub fn pos(&self) -> u64 {
        self.input.pos
    }

    /// Whether the ring carries now, as far as this end knows.
    pub fn in_ring(&self) -> bool {
        self.in_ring
    }

    /// Decides where to read next, entering or leaving a stretch when it is time.
    #[inline]
    pub fn next(&mut self, half: Half) -> Result<Read, Lie> {
        for _ in 0..PATIENCE {
            if self.in_ring {
                if !self.input.is_frozen(half.reader)? {
                    return Ok(Read::Ring(self.input.available(half.writer, half.size)?));
                }
                self.leave(half);
            }
            let Some(stretch) = self.input.announced(half.writer) else {
                let outside = self.input.is_outside(half.reader);
                return if outside { Ok(Read::Kernel(u64::MAX)) } else { Err(Lie) };
            };
            if stretch.is_cancelled(half.reader) {
                // Wherever it would have begun, the kernel carries on.
                self.input.epoch = stretch.epoch;
                self.notice(half, stretch.from);
                continue;
            }
            if self.input.pos < stretch.from {
                return Ok(Read::Kernel(stretch.from - self.input.pos));
            }
            if self.input.pos > stretch.from {
                return Err(Lie);
            }
            self.in_ring = self.input.enter(half.reader, stretch)?;
            if !self.in_ring {
                self.notice(half, stretch.from);
            }
        }
        Err(Lie)
    }

    /// The bytes of a stretch that begins where the kernel's bytes end, for looks beyond these: where they lie (as
    /// [`Rx::at`]), and how many.
    pub fn beyond(&self, half: Half) -> (u64, usize) {
        let Some(stretch) = self.input.announced(half.writer).filter(|_| !self.in_ring) else { return (0, 0) };
        let n = half.writer.tail.load(Ordering::Acquire).wrapping_sub(stretch.from);
        let at = stretch.from.wrapping_sub(half.writer.base.load(Ordering::Relaxed));
        (at, n.min(half.size as u64) as usize)
    }

    /// Distance from the base of the next byte in the ring.
    #[inline]
    pub fn at(&self, half: Half) -> u64 {
        self.input.at(half.writer)
    }

    /// `n` bytes were copied out of the ring; on [`Advance::Frozen`] they must be forgotten.
    #[inline]
    pub fn took_ring(&mut self, half: Half, n: usize) -> Result<Advance, Lie> {
        let result = self.input.advance(half.reader, n)?;
        match result {
            Advance::Done => self.ring += n as u64,
            Advance::Frozen => self.leave(half),
        }
        Ok(result)
    }

    /// `n` bytes were read from the kernel.
    #[inline]
    pub fn took_kernel(&mut self, n: usize) {
        self.input.pos += n as u64;
        self.kernel += n as u64;
    }

    /// Ends the stretch here: everything unread will come by kernel.
    pub fn freeze(&mut self, half: Half) {
        if self.in_ring {
            self.input.freeze(half.reader);
            self.leave(half);
        }
    }

    /// Cancels an announced stretch that has not been entered, by entering and ending it at its beginning.
    pub fn refuse(&mut self, half: Half) -> Result<(), Lie> {
        if let Some(stretch) = self.input.announced(half.writer) {
            let mut probe = Input { pos: stretch.from, ..self.input };
            if probe.enter(half.reader, stretch)? {
                probe.freeze(half.reader);
            }
            self.input.epoch = stretch.epoch;
            self.notice(half, stretch.from);
        }
        Ok(())
    }

    /// The kernel says that the stream has ended. Bytes that a dead writer left in the ring come first: returns
    /// how many, at [`Rx::at`]; report them with [`Rx::took_rest`].
    pub fn rest(&mut self, half: Half) -> Result<usize, Lie> {
        if let Read::Ring(n) = self.next(half)? {
            return Ok(n);
        }
        // What lies before the end of the stretch was the kernel's, and if it did not come it is lost with the writer.
        // A writer that has begun another stretch had sent all of this one.
        let pos = self.input.pos;
        if pos < self.drain_from || self.input.announced(half.writer).is_some() {
            return Ok(0);
        }
        // The writer may have written on before it was told of the end.
        self.drain_to = half.writer.tail.load(Ordering::Acquire);
        if half.writer.base.load(Ordering::Relaxed) > pos {
            return Ok(0); // it was just beginning another
        }
        let left = self.drain_to.saturating_sub(pos);
        if left > half.size as u64 { Err(Lie) } else { Ok(left as usize) }
    }

    /// `n` bytes of [`Rx::rest`] were copied out.
    pub fn took_rest(&mut self, half: Half, n: usize) -> Result<Advance, Lie> {
        if self.in_ring {
            return self.took_ring(half, n);
        }
        self.input.pos += n as u64;
        self.ring += n as u64;
        Ok(Advance::Done)
    }

    /// Position up to which bytes had been published when the last stretch ended.
    pub fn drain_target(&self) -> u64 {
        self.drain_to
    }

    /// Position up to which the writer has published, as it says now.
    pub fn published(&self, half: Half) -> u64 {
        let tail = half.writer.tail.load(Ordering::Acquire);
        // A position beyond the ring's reach is a lie; nobody waits for it.
        if tail.wrapping_sub(self.input.pos) > half.size as u64 { 0 } else { tail }
    }

    /// Bytes that were in the ring when the last stretch ended and have not been read since, by whichever carrier.
    pub fn on_its_way(&self) -> u64 {
        if self.in_ring { 0 } else { self.drain_to.saturating_sub(self.input.pos) }
    }

    /// The program has been told of `n` readable bytes.
    pub fn tell(&mut self, n: usize) {
        self.told = self.told.max(self.input.pos + n as u64);
    }

    /// The program has read less than it was told of, and knows.
    pub fn take_back_promise(&mut self) {
        self.told = self.input.pos;
    }

    /// Bytes among [`Rx::on_its_way`] that the program has been told of, and will expect to be there.
    #[inline]
    pub fn owed(&self) -> u64 {
        if self.in_ring { 0 } else { self.drain_to.min(self.told).saturating_sub(self.input.pos) }
    }

    /// Bytes published to us and not read, if the ring carries.
    pub fn unread(&self, half: Half) -> usize {
        if self.in_ring { self.input.available(half.writer, half.size).unwrap_or(0) } else { 0 }
    }

    fn leave(&mut self, half: Half) {
        self.in_ring = false;
        self.ended += 1;
        self.notice(half, self.input.pos);
    }

    /// Remembers what was published when the stretch ended, at `end`; then tells the writer that it may begin another.
    fn notice(&mut self, half: Half, end: u64) {
        self.drain_from = end;
        let tail = half.writer.tail.load(Ordering::Acquire);
        // More than a ring holds is a lie, and nobody waits for it.
        self.drain_to = if tail.wrapping_sub(end) > half.size as u64 { end } else { tail };
        // SYNC noticed: drain_to is read before the writer may move the tail for a new stretch.
        half.reading_side.seen_epoch.store(self.input.epoch, Ordering::Release);
    }
}
