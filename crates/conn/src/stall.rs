//! When a reader counts as stalled, and when its direction tries a ring again.
//!
//! A writer whose ring stays full waits for the reader for a while. Then the kernel takes over, whose buffers are larger. What
//! happens next shows the cause of the stall:
//!
//! - The kernel's buffers fill up as well. The reader is slower than the writer by either carrier, and the writer waits in any
//!   case. The direction tries a ring again at once, with more patience.
//! - The kernel takes everything. The ring was too small for what the writer writes before the reader looks. Each further
//!   attempt would delay the writer again, so each comes later than the one before.
//!
//! A reader that still reads the kernel's bytes from before the stretch has not stalled, though nothing moves in the ring.

/// A stretch that has carried so many bytes before its reader stalled was worth it.
const WORTH_IT: u64 = 1 << 20;
/// Bytes by kernel after a stall, before a ring is tried again: at first, and at most.
const FIRST_BACK_OFF: u64 = 4096;
const MOST_BACK_OFF: u64 = 1 << 26;
/// Patience is doubled so often at most: 160 ms.
const MOST_PATIENCE: u32 = 3;

/// What the writing end knows of its reader's pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When nothing moved for the first time while the ring was full; `None`: it is not full.
    since: Option<u64>,
    /// Where the reader was then.
    read: u64,
    /// How often patience has been doubled.
    patience: u32,
    back_off: u64,
    /// The next stretch may begin at or after this position.
    again_at: u64,
    /// The kernel carries because the reader has stalled, and its buffers have not filled up since.
    spilled: bool,
}

impl Default for Stall {
    fn default() -> Stall {
        Stall { since: None, read: 0, patience: 0, back_off: FIRST_BACK_OFF, again_at: 0, spilled: false }
    }
}

impl Stall {
    /// The ring is full. `read`: the reader's position, by either carrier, as the reader says. `patience`: how long the reader
    /// may stay there at first, in units of `now`. True: the reader has stalled.
    pub fn is_full(&mut self, now: u64, read: u64, patience: u64) -> bool {
        match self.since {
            Some(since) if read == self.read => now.saturating_sub(since) >= patience << self.patience,
            _ => {
                (self.since, self.read) = (Some(now), read);
                false
            }
        }
    }

    /// The ring has taken something, or carries no more.
    #[inline]
    pub fn is_over(&mut self) {
        self.since = None;
    }

    /// The stretch ends at `pos` because the reader has stalled. `carried`: its bytes; `size`: of the ring.
    pub fn spill(&mut self, pos: u64, carried: u64, size: u64) {
        if carried >= WORTH_IT.max(4 * size) {
            self.back_off = FIRST_BACK_OFF;
        } else {
            self.back_off = (self.back_off * 4).min(MOST_BACK_OFF);
            if self.spilled {
                self.patience = 0; // the last time the kernel has taken everything
            }
        }
        self.spilled = true;
        self.is_over();
        self.hold_back(pos);
    }

    /// The kernel takes no more, at `pos`: the writer waits for its reader there, too.
    #[cold]
    pub fn kernel_is_full(&mut self, pos: u64) {
        if self.spilled {
            self.spilled = false;
            self.patience = (self.patience + 1).min(MOST_PATIENCE);
            self.back_off = FIRST_BACK_OFF;
            self.again_at = pos;
        }
    }

    /// The kernel carries from `pos` on, and for a while.
    pub fn hold_back(&mut self, pos: u64) {
        self.again_at = pos + self.back_off;
    }

    /// The kernel carries from `pos` on, until `distance` bytes later.
    pub fn resume_after(&mut self, pos: u64, distance: u64) {
        self.again_at = pos + distance;
    }

    /// Whether a stretch may begin at `pos`, as far as stalls decide.
    pub fn permits(&self, pos: u64) -> bool {
        pos >= self.again_at
    }
}
