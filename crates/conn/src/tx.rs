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
    /// First these unread bytes, at this distance from the base, from the ring to the kernel; then ask again.
    Unread { at: u64, len: usize },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Carrier {
    #[default]
    Kernel,
    Ring,
    /// The ring carries to its tail, and no further. What the reader has not read yet is sent by kernel, too: from
    /// `from` on, so far up to `next`. The reader discards what it has had from the ring.
    Copying {
        from: u64,
        next: u64,
    },
    /// The reader has left the ring. What it has not read, from here on, goes by kernel.
    TakeBack(u64),
}

/// State of the writing end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tx {
    output: Output,
    carrier: Carrier,
    froze: u32,
    /// Bytes given to the kernel, copies included.
    pub socket: u64,
    /// Bytes that went into rings and were, or will be, read there.
    pub ring: u64,
    /// Stretches that ended.
    pub ended: u32,
    /// Position after the last byte that the program wrote.
    pos: u64,
    /// Position from which on the kernel carries what no ring has carried.
    kernel_from: u64,
}

impl Tx {
    /// A direction to which the program has written `pos` bytes, all by kernel.
    pub fn native(pos: u64) -> Tx {
        Tx { pos, socket: pos, ..Tx::default() }
    }

    /// `Side::froze` when this end last looked.
    pub fn froze_seen(&self) -> u32 {
        self.froze
    }

    /// Bytes of this direction that the program has written.
    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// Bytes of the stream that the kernel has had from us, without copies of what the ring carries.
    pub fn kernel(&self) -> u64 {
        let unsent = if let Carrier::TakeBack(next) = self.carrier { self.output.tail - next } else { 0 };
        self.pos - self.ring - unsent
    }

    /// Bytes at the end of what the kernel was given that are no copies.
    pub fn news_in_kernel(&self) -> u64 {
        match self.carrier {
            Carrier::Kernel => self.pos - self.kernel_from,
            Carrier::TakeBack(next) => next - self.kernel_from,
            Carrier::Ring | Carrier::Copying { .. } => 0,
        }
    }

    /// Whether new bytes go into the ring, as far as this end knows.
    pub fn in_ring(&self) -> bool {
        self.carrier == Carrier::Ring
    }

    /// Whether unread bytes of an ended stretch are still to be sent by kernel.
    pub fn has_unsent(&self) -> bool {
        matches!(self.carrier, Carrier::Copying { .. } | Carrier::TakeBack(_))
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
            self.end(half)?;
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
        self.next_unread(half)
    }

    fn next_unread(&mut self, half: Half) -> Result<Write, Lie> {
        if let Carrier::Copying { .. } = self.carrier {
            self.look(half)?;
        }
        let (Carrier::Copying { next, .. } | Carrier::TakeBack(next)) = self.carrier else {
            return Ok(Write::Kernel);
        };
        Ok(Write::Unread { at: next - self.output.base, len: (self.output.tail - next) as usize })
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
        self.socket += n as u64;
    }

    /// `n` bytes of [`Write::Unread`] went to the kernel.
    pub fn sent_unread(&mut self, half: Half, n: usize) {
        if let Carrier::Copying { next, .. } | Carrier::TakeBack(next) = &mut self.carrier {
            *next += n as u64;
            self.socket += n as u64;
            half.writer.sent_to.store(*next, Ordering::Relaxed);
        }
        self.settle(half);
    }

    /// Takes note of unread bytes that the reader has sent to itself on our behalf. Call it after
    /// [`Half::claim_sending`].
    pub fn heed_deputy(&mut self, half: Half) -> Result<(), Lie> {
        if let Carrier::Copying { next, .. } | Carrier::TakeBack(next) = &mut self.carrier {
            let sent_to = half.writer.sent_to.load(Ordering::Relaxed);
            if sent_to > self.output.tail {
                return Err(Lie);
            }
            if sent_to > *next {
                self.socket += sent_to - *next;
                *next = sent_to;
            }
        }
        self.settle(half);
        Ok(())
    }

    /// Ends the stretch: the ring carries what is in it, everything else goes by kernel. What the reader has not read
    /// is copied to the kernel ([`Write::Unread`]), so that it can leave the ring at any time.
    pub fn end(&mut self, half: Half) -> Result<(), Lie> {
        if self.carrier != Carrier::Ring {
            return Ok(());
        }
        self.look(half)?;
        if self.carrier != Carrier::Ring {
            return Ok(()); // it had ended
        }
        if self.output.unread() == 0 {
            self.complete(half, 0);
            return Ok(());
        }
        match self.output.mark_copying(half.writer, half.reader)? {
            Head::At(from) => {
                self.ended += 1;
                self.carrier = Carrier::Copying { from, next: from };
                self.settle(half);
            }
            Head::Frozen(end) => self.left_by_reader(half, end),
        }
        Ok(())
    }

    /// Ends the stretch and leaves what is unread to the ring alone: the reader reads it there, or never. For a
    /// direction that the kernel will not deliver to any more.
    pub fn end_without_copies(&mut self, half: Half) -> Result<(), Lie> {
        self.look(half)?;
        match self.carrier {
            // A reader that has not entered may just be reading from the kernel: only copies are right for it there.
            Carrier::Ring if self.output.is_waiting(half.reader) => self.end(half)?,
            Carrier::Ring => self.complete(half, 0),
            Carrier::Copying { .. } => self.stop_copying(half),
            // What a reader that has left is to get by kernel nobody else can bring.
            Carrier::TakeBack(_) | Carrier::Kernel => {}
        }
        Ok(())
    }

    /// The kernel takes nothing more: the reader is gone. What was to be sent is left where it is.
    pub fn abandon(&mut self, half: Half) {
        self.stop_copying(half);
        self.carrier = Carrier::Kernel;
    }

    /// Leaves to the ring what the kernel has not taken of the copies. Bytes for a reader that has left the ring stay unsent.
    pub fn stop_copying(&mut self, half: Half) {
        if let Carrier::Copying { from, next } = self.carrier {
            self.complete(half, next - from);
        }
    }

    /// Looks at the reader's word now: space, or the end of the stretch.
    pub fn look(&mut self, half: Half) -> Result<(), Lie> {
        if !matches!(self.carrier, Carrier::Ring | Carrier::Copying { .. }) {
            return Ok(());
        }
        self.froze = half.reading_side.froze.load(Ordering::Acquire);
        match self.output.look(half.reader)? {
            Head::At(_) if self.carrier == Carrier::Ring => self.output.rebase(half.writer),
            Head::At(_) => self.settle(half),
            Head::Frozen(end) => self.left_by_reader(half, end),
        }
        Ok(())
    }

    /// Whether a change was hinted that this end has not looked at.
    #[inline]
    pub fn asked_back(&self, half: Half) -> bool {
        self.carrier == Carrier::Ring && half.reading_side.froze.load(Ordering::Acquire) != self.froze
    }

    /// Bytes in the ring that the reader had not consumed when last looked at.
    pub fn unread(&self) -> u64 {
        match self.carrier {
            Carrier::Ring | Carrier::Copying { .. } => self.output.unread(),
            Carrier::TakeBack(next) => self.output.tail - next,
            Carrier::Kernel => 0,
        }
    }

    /// Copies are complete when all is copied, or when nothing is left to be copied.
    fn settle(&mut self, half: Half) {
        match self.carrier {
            Carrier::Copying { from, next } if next == self.output.tail || self.output.unread() == 0 => {
                self.complete(half, next - from);
            }
            Carrier::TakeBack(next) if next == self.output.tail => self.carrier = Carrier::Kernel,
            _ => {}
        }
    }

    fn complete(&mut self, half: Half, copied: u64) {
        if self.carrier == Carrier::Ring {
            self.ended += 1;
        }
        self.output.complete(half.writer, copied);
        self.kernel_from = self.output.tail;
        self.carrier = Carrier::Kernel;
    }

    /// The reader has left the ring at `end`: the kernel carries what comes after that, and after the last copy.
    fn left_by_reader(&mut self, half: Half, end: u64) {
        self.ring -= self.output.tail - end;
        self.kernel_from = end;
        let next = match self.carrier {
            Carrier::Copying { from, next } => {
                self.output.complete(half.writer, next.min(end) - from);
                next.max(end)
            }
            _ => {
                self.ended += 1;
                self.output.complete(half.writer, 0);
                end
            }
        };
        self.carrier = Carrier::TakeBack(next);
        self.settle(half);
    }
}

/// Bytes at the beginning of the ring that small traffic stays in: half of a first-level cache.
const WARM: u64 = 8192;
