//! The writing end of a direction.

mod leave;

use crate::course::Course;
use sidestep_ring::{Half, Head, Output, PeerViolation};

/// Where the next byte goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// To the kernel.
    Kernel,
    /// Into the ring: this many bytes fit (0: full).
    Ring(usize),
    /// First unread bytes of the ring, to the kernel. Then ask again.
    Unread {
        /// Distance of the first one from the base of the ring.
        at: u64,
        /// Number of bytes.
        len: usize,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Carrier {
    #[default]
    Kernel,
    Ring,
    /// The ring carries to its tail, and no further. This end also sends the unread bytes by kernel, from `from` on, and has
    /// sent them up to `next`. The reader discards the copies of bytes that it has read in the ring.
    Copying {
        from: u64,
        next: u64,
    },
    /// The reader has left the ring. Unread bytes from this position on go by kernel.
    TakeBack(u64),
}

/// State of the writing end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tx {
    output: Output,
    carrier: Carrier,
    froze: u32,
    /// This end looks at the reader's word at each write, as if there were always a hint.
    is_restless: bool,
    /// Bytes given to the kernel, copies included.
    pub socket: u64,
    /// Bytes that went into rings, and that the reader reads there.
    pub ring: u64,
    /// Number of stretches that have ended.
    pub ended: u32,
    /// Position after the last byte that the program wrote.
    pos: u64,
    /// The kernel carries bytes from this position on that no ring has carried.
    kernel_from: u64,
}

impl Tx {
    /// A direction to which the program has written `pos` bytes, all by kernel.
    pub fn native(pos: u64) -> Tx {
        Tx { pos, socket: pos, ..Tx::default() }
    }

    /// A direction whose writing end was another process, which has written `pos` bytes and the last ones into a ring. `has_entered`:
    /// the reader had entered that stretch. If no stretch carries any more, this end is on the kernel, or still has to send there what
    /// the reader has left in the ring.
    pub fn found(half: Half, pos: u64, has_entered: bool) -> Tx {
        if let Some(output) = Output::found(half.writer, half.reader, pos, half.size, has_entered) {
            return Tx { output, carrier: Carrier::Ring, ring: pos - output.from, ..Tx::native(pos) };
        }
        let native = Tx::native(pos);
        let Some((output, left)) = Output::found_left(half.writer, half.reader, pos, half.size) else { return native };
        let carrier = Carrier::TakeBack(left.max(half.sent_to()).min(pos));
        let mut found = Tx { output, carrier, ring: left - output.from, kernel_from: left, ..native };
        found.settle(half);
        found
    }

    /// The same direction; its end looks at the reader's word at each write.
    #[must_use]
    pub fn restless(self) -> Tx {
        Tx { is_restless: true, ..self }
    }

    /// Value of `Side::froze` when this end last noted hints.
    pub fn froze_seen(&self) -> u32 {
        self.froze.wrapping_add(u32::from(self.is_restless))
    }

    /// Notes all hints so far: this end is about to look at everything that they may concern. Any later change comes with
    /// another hint.
    pub fn note_hints(&mut self, half: Half) {
        self.froze = half.hints().wrapping_sub(u32::from(self.is_restless));
    }

    /// Bytes of this direction that the program has written.
    pub fn pos(&self) -> u64 {
        self.pos
    }

    /// Bytes of the stream that this end has given to the kernel, without copies.
    pub fn kernel(&self) -> u64 {
        let unsent = if let Carrier::TakeBack(next) = self.carrier { self.output.tail - next } else { 0 };
        self.pos - self.ring - unsent
    }

    /// Bytes given to the kernel since the last copy.
    pub fn news_in_kernel(&self) -> u64 {
        match self.carrier {
            Carrier::Kernel => self.pos - self.kernel_from,
            Carrier::TakeBack(next) => next - self.kernel_from,
            Carrier::Ring | Carrier::Copying { .. } => 0,
        }
    }

    /// Where the next byte goes, as far as this end knows.
    #[inline]
    pub fn course(&self) -> Course {
        match self.carrier {
            Carrier::Kernel => Course::Kernel,
            Carrier::Ring => Course::Ring,
            Carrier::Copying { .. } | Carrier::TakeBack(_) => Course::Unsent,
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

    /// Whether another stretch may begin: the reader has noticed the end of the last one, and at least one byte has gone by
    /// kernel since (see [`Output::begin`]).
    pub fn may_begin(&mut self, half: Half) -> bool {
        if self.carrier != Carrier::Kernel {
            return false;
        }
        // Before the caller looks for holds: a hold that the caller does not see yet comes with a later hint.
        self.note_hints(half);
        half.seen() == self.output.epoch()
            && !half.is_unwanted()
            && (self.output.epoch() == 0 || self.pos > self.output.tail)
    }

    /// Begins a stretch of ring at the present position. The caller has called `may_begin`, then looked for holds, and has
    /// checked the position against the kernel's. False: the reader withdrew its readiness meanwhile, and the stretch has
    /// ended.
    pub fn begin(&mut self, half: Half) -> Result<bool, PeerViolation> {
        self.output.begin(half.writer, half.reader, self.pos)?;
        self.carrier = Carrier::Ring;
        if !half.is_still_ready() {
            self.end(half)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Decides where the next byte goes. `want`: number of bytes that the caller has. The cache line of the reader's word
    /// bounces between processors. So it is loaded only if the bytes do not fit, or would leave the warm part of the ring.
    #[inline]
    pub fn next(&mut self, half: Half, want: usize) -> Result<Write, PeerViolation> {
        if self.carrier == Carrier::Kernel {
            return Ok(Write::Kernel);
        }
        if self.carrier == Carrier::Ring {
            let tight = self.output.space(half.size) < want || self.output.at() + want as u64 > WARM;
            if tight || self.asked_back(half) {
                self.poll(half)?;
            }
            if self.carrier == Carrier::Ring {
                return Ok(Write::Ring(self.output.space(half.size)));
            }
        }
        self.next_unread(half)
    }

    fn next_unread(&mut self, half: Half) -> Result<Write, PeerViolation> {
        if let Carrier::Copying { .. } = self.carrier {
            self.poll(half)?;
        }
        let (Carrier::Copying { next, .. } | Carrier::TakeBack(next)) = self.carrier else {
            return Ok(Write::Kernel);
        };
        Ok(Write::Unread { at: next - self.output.base, len: (self.output.tail - next) as usize })
    }

    /// Distance of the next free byte from the base.
    #[inline]
    pub fn at(&self) -> u64 {
        self.output.at()
    }

    /// The caller has copied `n` bytes into the ring.
    #[inline]
    pub fn put_ring(&mut self, half: Half, n: usize) -> Result<(), PeerViolation> {
        self.output.publish(half.writer, n);
        self.pos += n as u64;
        self.ring += n as u64;
        // The reader freezes, fences, and then looks for bytes. This end has published and fenced, and now looks for the
        // freeze.
        if self.asked_back(half) { self.poll(half) } else { Ok(()) }
    }

    /// The caller has given `n` bytes of the program to the kernel.
    #[inline]
    pub fn put_kernel(&mut self, n: usize) {
        self.pos += n as u64;
        self.socket += n as u64;
    }

    /// The caller has given `n` bytes of [`Write::Unread`] to the kernel.
    pub fn sent_unread(&mut self, half: Half, n: usize) {
        if let Carrier::Copying { next, .. } | Carrier::TakeBack(next) = &mut self.carrier {
            *next += n as u64;
            self.socket += n as u64;
            half.set_sent_to(*next);
        }
        self.settle(half);
    }

    /// Accounts for unread bytes that the reader has sent to itself in place of this end. The caller holds
    /// [`Half::claim_sending`], or the reader has died.
    pub fn heed_deputy(&mut self, half: Half) -> Result<(), PeerViolation> {
        if let Carrier::Copying { next, .. } | Carrier::TakeBack(next) = &mut self.carrier {
            let sent_to = half.sent_to();
            if sent_to > self.output.tail {
                return Err(PeerViolation::SentTo);
            }
            if sent_to > *next {
                self.socket += sent_to - *next;
                *next = sent_to;
            }
        }
        self.settle(half);
        Ok(())
    }

    /// Ends the stretch: the ring carries the bytes that are in it, and all later ones go by kernel. The caller also sends the
    /// unread bytes by kernel ([`Write::Unread`]), so that the reader can leave the ring at any time.
    pub fn end(&mut self, half: Half) -> Result<(), PeerViolation> {
        if self.carrier != Carrier::Ring {
            return Ok(());
        }
        self.poll(half)?;
        if self.carrier != Carrier::Ring {
            return Ok(()); // the reader had ended it
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

    /// Looks at the reader's word, for space and for the end of the stretch.
    pub fn poll(&mut self, half: Half) -> Result<(), PeerViolation> {
        if !matches!(self.carrier, Carrier::Ring | Carrier::Copying { .. }) {
            return Ok(());
        }
        let head = self.output.poll(half.reader)?;
        self.heed(half, head);
        Ok(())
    }

    /// Acts on the reader's word, at which this end has just looked.
    fn heed(&mut self, half: Half, head: Head) {
        match head {
            Head::At(_) if self.carrier == Carrier::Ring => self.output.rebase(half.writer),
            Head::At(_) => self.settle(half),
            Head::Frozen(end) => self.left_by_reader(half, end),
        }
    }

    /// Whether there is a hint ([`Half::hint_freeze`]) that this end has not noted ([`Tx::note_hints`]).
    #[inline]
    pub fn asked_back(&self, half: Half) -> bool {
        self.carrier == Carrier::Ring && half.hints() != self.froze
    }

    /// Number of bytes in the ring that the reader had not read at the last look.
    pub fn unread(&self) -> u64 {
        match self.carrier {
            Carrier::Ring | Carrier::Copying { .. } => self.output.unread(),
            Carrier::TakeBack(next) => self.output.tail - next,
            Carrier::Kernel => 0,
        }
    }

    /// Completes the stretch if all bytes are copied, or the reader has read the rest in the ring.
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

    /// The reader has left the ring at `end`. The kernel carries all bytes after `end` that were not copied.
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

/// Small messages stay within this many bytes at the beginning of the ring: half of a first-level cache.
const WARM: u64 = 8192;
