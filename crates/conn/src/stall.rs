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
//! A reader that is still reading earlier bytes of the kernel has not stalled, although nothing moves in the ring.

/// A stretch that carried this many bytes before its reader stalled was worth it.
const WORTH_IT: u64 = 1 << 20;
/// Bytes by kernel after a stall, before a ring is tried again: at first, and at most.
const FIRST_BACK_OFF: u64 = 4096;
const MOST_BACK_OFF: u64 = 1 << 26;
/// Patience is doubled at most this often: 160 ms.
const MOST_PATIENCE: u32 = 3;

/// What the writing end knows of the reader's pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Time since which the ring has been full and the reader has not moved. `None`: the ring is not full.
    since: Option<u64>,
    /// Position of the reader at that time.
    read: u64,
    /// How often patience has been doubled.
    patience: u32,
    back_off: u64,
    /// The next stretch may begin at or after this position.
    again_at: u64,
    /// The kernel carries because the reader stalled, and the kernel's buffers have not filled up since.
    spilled: bool,
}

impl Default for Stall {
    fn default() -> Stall {
        Stall { since: None, read: 0, patience: 0, back_off: FIRST_BACK_OFF, again_at: 0, spilled: false }
    }
}

impl Stall {
    /// The ring is full. `read`: the reader's position, by either carrier, as its words say. `patience`: how long the reader
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

    /// The ring has taken bytes, or does not carry any more.
    #[inline]
    pub fn is_over(&mut self) {
        self.since = None;
    }

    /// The stretch ends at `pos` because the reader has stalled. `carried`: its number of bytes; `size`: of the ring.
    pub fn spill(&mut self, pos: u64, carried: u64, size: u64) {
        if carried >= WORTH_IT.max(4 * size) {
            self.back_off = FIRST_BACK_OFF;
        } else {
            self.back_off = (self.back_off * 4).min(MOST_BACK_OFF);
            if self.spilled {
                self.patience = 0; // after the last stall the kernel took everything
            }
        }
        self.spilled = true;
        self.is_over();
        self.hold_back(pos);
    }

    /// The kernel takes no more at `pos`: the writer has to wait for its reader there, too.
    #[cold]
    pub fn kernel_is_full(&mut self, pos: u64) {
        if self.spilled {
            self.spilled = false;
            self.patience = (self.patience + 1).min(MOST_PATIENCE);
            self.back_off = FIRST_BACK_OFF;
            self.again_at = pos;
        }
    }

    /// The kernel carries from `pos` on, for at least the back-off.
    pub fn hold_back(&mut self, pos: u64) {
        self.again_at = pos + self.back_off;
    }

    /// The kernel carries from `pos` on, for at least `distance` bytes.
    pub fn resume_after(&mut self, pos: u64, distance: u64) {
        self.again_at = pos + distance;
    }

    /// Whether stalls permit a stretch to begin at `pos`.
    pub fn permits(&self, pos: u64) -> bool {
        pos >= self.again_at
    }
}
