//! Whether a set is waited for so often that the order between ring and kernel is not worth its price.

/// Windows in a row that must have been short.
const WINDOWS: u32 = 16;

/// How fast the waits of one set follow each other.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pace {
    waits: u32,
    /// When this window began, in ticks.
    since: u64,
    short: u32,
}

impl Pace {
    /// Waits of one window.
    pub const WINDOW: u32 = 64;

    /// No wait has begun.
    pub const fn new() -> Pace {
        Pace { waits: 0, since: 0, short: 0 }
    }

    /// A wait begins at `now`; `window` is how long, in ticks, a window may take to count as short. Whether the set is
    /// in a hurry.
    pub fn is_hurried(&mut self, now: u64, window: u64) -> bool {
        self.waits += 1;
        if self.waits >= Pace::WINDOW {
            let short = now.wrapping_sub(self.since) < window;
            self.short = if short { (self.short + 1).min(WINDOWS) } else { 0 };
            (self.waits, self.since) = (0, now);
        }
        self.short == WINDOWS
    }
}
