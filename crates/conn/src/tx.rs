//! The writing end of a direction.

use crate::Half;
use sidestep_abi::sync::Ordering;
use sidestep_ring::{Head, Lie, Output};

/// Where the next byte goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// To the kernel.
    Kernel,
    /// Into the ring: this many bytes fit (0: full).
    Ring(usize),
    /// First these bytes, at this distance from the base, from the ring to the kernel; then ask again.
    TakeBack { at: u64, len: usize },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Carrier {
    #[default]
    Kernel,
    Ring,
    /// The stretch has ended; bytes from here to the tail are still to be sent by kernel.
    TakeBack(u64),
}

/// State of the writing end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tx {
    output: Output,
    carrier: Carrier,
    froze: u32,
    /// Bytes written to the kernel, those taken back included.
    pub kernel: u64,
    /// Bytes that went into rings and stayed there.
    pub ring: u64,
    /// Stretches that ended.
    pub ended: u32,
    /// Position after the last byte that the program wrote.
    pos: u64,
}

impl Tx {
    /// A direction to which the program has written `pos` bytes, all by kernel.
    pub fn native(pos: u64) -> Tx {
        Tx { pos, kernel: pos, ..Tx::default() }
    }

    /// `Side::froze` when this end last looked.
    pub fn froze_seen(&self) -> u32 {
        self.froze
    }

    /// Bytes of this direction that the program has written.
    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// Whether the ring carries now, as far as this end knows.
    pub fn in_ring(&self) -> bool {
        self.carrier == Carrier::Ring
    }

    /// Whether bytes wait to be moved from the ring to the kernel.
    pub fn takes_back(&self) -> bool {
        matches!(self.carrier, Carrier::TakeBack(_))
    }

    /// Whether the reader has noticed the end of the last stretch, so that another may begin, and at least one
    /// byte has gone by kernel since (see [`Output::begin`]).
    pub fn may_begin(&self, half: Half) -> bool {
        // SYNC noticed
        let seen = half.reading_side.seen_epoch.load(Ordering::Acquire);
        self.carrier == Carrier::Kernel
            && half.reading_side.ready.load(Ordering::Acquire) != 0
            && seen == self.output.epoch()
            && (self.output.epoch() == 0 || self.pos > self.output.tail)
    }

    /// Begins a stretch of ring at the present position. Call only after `may_begin`, and with the position
    /// checked against the kernel. False: the reader withdrew its readiness meanwhile; nothing changed.
    pub fn begin(&mut self, half: Half) -> Result<bool, Lie> {
        self.froze = half.reading_side.froze.load(Ordering::Relaxed);
        self.output.begin(half.writer, half.reader, self.pos)?;
        self.carrier = Carrier::Ring;
        // SYNC ready: the reader withdraws, fences, looks for a stretch; we announce, fence, look at readiness.
        sidestep_abi::sync::fence(Ordering::SeqCst);
        if half.reading_side.ready.load(Ordering::Relaxed) == 0 {
            self.give_back(half)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Decides where the next byte goes. `want`: how many the caller has; the reader's word, a line that
    /// bounces between the processors, is looked at only if they do not fit or would leave the warm part.
    #[inline]
    pub fn next(&mut self, half: Half, want: usize) -> Result<Write, Lie> {
        if self.carrier == Carrier::Kernel {
            return Ok(Write::Kernel);
        }
        if self.carrier == Carrier::Ring {
            let tight = self.output.space(half.size) < want || self.output.at() + want as u64 > WARM;
            if tight || self.asked_back(half) {
                self.look(half)?;
            }
            if self.carrier == Carrier::Ring {
                return Ok(Write::Ring(self.output.space(half.size)));
            }
        }
        Ok(self.next_to_take_back())
    }

    fn next_to_take_back(&mut self) -> Write {
        let Carrier::TakeBack(next) = self.carrier else { return Write::Kernel };
        if next == self.output.tail {
            self.carrier = Carrier::Kernel;
            return Write::Kernel;
        }
        Write::TakeBack { at: next - self.output.base, len: (self.output.tail - next) as usize }
    }

    /// Distance from the base of the next free byte.
    #[inline]
    pub fn at(&self) -> u64 {
        self.output.at()
    }

    /// `n` bytes were copied into the ring.
    #[inline]
    pub fn put_ring(&mut self, half: Half, n: usize) -> Result<(), Lie> {
        self.output.publish(half.writer, n);
        self.pos += n as u64;
        self.ring += n as u64;
        // The reader froze and fenced, then looked for bytes; we published and fenced, now look for its freeze.
        if self.asked_back(half) { self.look(half) } else { Ok(()) }
    }

    /// `n` bytes of the program went to the kernel.
    #[inline]
    pub fn put_kernel(&mut self, n: usize) {
        self.pos += n as u64;
        self.kernel += n as u64;
    }

    /// `n` bytes of [`Write::TakeBack`] went to the kernel.
    pub fn took_back(&mut self, n: usize) {
        if let Carrier::TakeBack(next) = &mut self.carrier {
            *next += n as u64;
            self.ring -= n as u64;
            self.kernel += n as u64;
        }
        self.next_to_take_back();
    }

    /// The kernel takes nothing more (the reader is gone): what is left to take back is left where it is.
    pub fn abandon(&mut self) {
        if self.takes_back() {
            self.carrier = Carrier::Kernel;
        }
    }

    /// Ends the stretch at the reader's position. What it has not read is then to be taken back.
    pub fn give_back(&mut self, half: Half) -> Result<(), Lie> {
        if self.carrier == Carrier::Ring {
            let end = self.output.freeze(half.reader)?;
            self.leave(end);
        }
        Ok(())
    }

    /// Looks at the reader's word now: space, or the end of the stretch.
    pub fn look(&mut self, half: Half) -> Result<(), Lie> {
        if self.carrier != Carrier::Ring {
            return Ok(());
        }
        self.froze = half.reading_side.froze.load(Ordering::Acquire);
        match self.output.look(half.reader)? {
            Head::At(_) => self.output.rebase(half.writer),
            Head::Frozen(end) => self.leave(end),
        }
        Ok(())
    }

    /// Whether a freeze was hinted that this end has not looked at.
    #[inline]
    pub fn asked_back(&self, half: Half) -> bool {
        self.carrier == Carrier::Ring && half.reading_side.froze.load(Ordering::Acquire) != self.froze
    }

    /// Bytes in the ring that the reader had not consumed when last looked at.
    pub fn unread(&self) -> u64 {
        if self.in_ring() { self.output.unread() } else { 0 }
    }

    fn leave(&mut self, end: u64) {
        self.carrier = Carrier::TakeBack(end);
        self.ended += 1;
        self.next_to_take_back();
    }
}

/// Bytes of a ring that stay in a processor's nearest cache: small traffic returns to the base within them.
const WARM: u64 = 8192;
