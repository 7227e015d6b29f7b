//! Copies: bytes of a stretch that the kernel delivers although the reader has had them from the ring. The reader discards them
//! before it reads new bytes.

use sidestep_ring::{Half, Input, PeerViolation};

/// The copies that the kernel has not delivered yet, of a stretch that the reader has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Left {
    #[default]
    None,
    /// Exactly this many.
    Exactly(u64),
    /// At most this many. The writer stores the number when it notices that the reader has left ([`Writer::complete`]).
    ///
    /// [`Writer::complete`]: sidestep_abi::link::Writer::complete
    AtMost(u64),
}

/// The copies of the present stretch, or of the last one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copies {
    /// Position at which the stretch began.
    from: u64,
    /// Copies that the reader has discarded already.
    discarded: u64,
    left: Left,
}

impl Copies {
    /// The reader, at `pos`, enters a stretch that began at `from`. It has read the bytes between from copies.
    pub fn begin(&mut self, from: u64, pos: u64) {
        (self.from, self.discarded) = (from, pos - from);
    }

    /// Whether the kernel's queue has, or may have, copies in it.
    pub fn is_expected(&self) -> bool {
        !matches!(self.left, Left::None | Left::AtMost(0))
    }

    /// Whether the number of copies is known.
    pub fn is_settled(&self) -> bool {
        !matches!(self.left, Left::AtMost(_))
    }

    /// The reader leaves a complete stretch, of which it has read everything.
    pub fn leave_complete(&mut self, input: &Input, half: Half) -> Result<(), PeerViolation> {
        let left = self.of_complete(half)?;
        if left + self.discarded > input.pos - self.from {
            return Err(PeerViolation::Copies);
        }
        if left > 0 {
            self.left = Left::Exactly(left);
        }
        Ok(())
    }

    /// The reader leaves a stretch that the writer copies. False: the kernel has no copy of a byte that the reader has read.
    pub fn leave(&mut self, input: &Input, half: Half) -> Result<bool, PeerViolation> {
        let left = self.so_far(input, half)?;
        if left == 0 && self.discarded == 0 {
            return Ok(false);
        }
        self.left = Left::AtMost(left);
        Ok(true)
    }

    /// Whether the kernel has, or will have, a copy of a byte that the reader has read in the present stretch. A wrong word of the
    /// writer's is found when the reader leaves.
    pub fn are_of_read_bytes(&self, input: &Input, half: Half) -> bool {
        self.discarded > 0 || self.so_far(input, half) != Ok(0)
    }

    /// Learns the number of copies, if the writer has stored it. True: the number has become known.
    pub fn settle(&mut self, input: &Input, half: Half) -> Result<bool, PeerViolation> {
        let Left::AtMost(most) = self.left else { return Ok(false) };
        if !input.is_complete(half.writer) {
            return Ok(false);
        }
        // Copies of bytes that the reader has not had from the ring are not to be discarded.
        self.set(self.of_complete(half)?.min(most));
        Ok(true)
    }

    /// The stretch has ended at `end`, and everything before `sent_to` has been sent, so the writer has copied no further than
    /// that. True: the number has become known.
    pub fn settle_by_sent(&mut self, end: u64, sent_to: u64) -> Result<bool, PeerViolation> {
        let Left::AtMost(most) = self.left else { return Ok(false) };
        let resume = end.wrapping_sub(most).wrapping_sub(self.discarded);
        let copied = sent_to.clamp(resume.min(end), end).wrapping_sub(resume);
        let left = copied.checked_sub(self.discarded).ok_or(PeerViolation::Copies)?;
        self.set(left.min(most));
        Ok(true)
    }

    fn set(&mut self, left: u64) {
        self.left = if left > 0 { Left::Exactly(left) } else { Left::None };
    }

    /// How many bytes at the head of the kernel's queue are copies. The caller has called [`Copies::settle`] before.
    pub fn discardable(&self, input: &Input, half: Half, in_ring: bool) -> Result<u64, PeerViolation> {
        match self.left {
            Left::None if in_ring => self.of_present(input, half),
            Left::None => Ok(0),
            // The writer stores the number of copies before it sends anything else. It had not stored it when the caller asked
            // for the length of the queue, so the queue has nothing but copies up to that number.
            Left::Exactly(n) | Left::AtMost(n) => Ok(n),
        }
    }

    /// The reader has discarded `n` copies.
    pub fn discard(&mut self, n: u64, in_ring: bool) {
        if in_ring {
            self.discarded += n;
            return;
        }
        self.left = match self.left {
            Left::Exactly(all) if all > n => Left::Exactly(all - n),
            // The writer may have sent fewer, and will store that number. It has not sent more.
            Left::AtMost(all) => {
                self.discarded += n;
                Left::AtMost(all.saturating_sub(n))
            }
            _ => Left::None,
        };
    }

    /// No copies come any more.
    pub fn end(&mut self) {
        self.left = Left::None;
    }

    /// How many of the kernel's `queued` bytes are new: after the copies, and after the present stretch.
    pub fn news(&self, input: &Input, half: Half, in_ring: bool, queued: u64) -> u64 {
        match self.left {
            Left::Exactly(n) | Left::AtMost(n) => queued.saturating_sub(n),
            Left::None if !in_ring => queued,
            Left::None if !input.is_complete(half.writer) => 0,
            Left::None => queued.saturating_sub(self.of_complete(half).unwrap_or(u64::MAX)),
        }
    }

    /// Whether a kernel queue of this length has copies of all bytes of a complete stretch from `resume` on, including the
    /// `unread` bytes that the reader has not had.
    pub fn have_arrived(&self, input: &Input, half: Half, unread: usize, queued: u64) -> Result<bool, PeerViolation> {
        let all = self.so_far(input, half)? + unread as u64;
        Ok(self.of_complete(half)? == all && queued >= all)
    }

    /// For the stretch that the reader is in: number of copies of bytes that it has read. Copies of other bytes must stay,
    /// since the reader may still leave the ring before those bytes.
    fn of_present(&self, input: &Input, half: Half) -> Result<u64, PeerViolation> {
        if !input.is_copying() {
            return Ok(0);
        }
        let read = self.so_far(input, half)?;
        if input.is_complete(half.writer) { Ok(read.min(self.of_complete(half)?)) } else { Ok(read) }
    }

    /// For a complete stretch: number of copies that the reader has not discarded.
    fn of_complete(&self, half: Half) -> Result<u64, PeerViolation> {
        half.copied().checked_sub(self.discarded).ok_or(PeerViolation::Copies)
    }

    /// Number of bytes before the reader's position of which the kernel carries, or will carry, copies that are not discarded
    /// yet.
    fn so_far(&self, input: &Input, half: Half) -> Result<u64, PeerViolation> {
        let resume = half.resume();
        if resume < self.from || resume > input.pos {
            return Err(PeerViolation::Copies);
        }
        (input.pos - resume).checked_sub(self.discarded).ok_or(PeerViolation::Copies)
    }
}
