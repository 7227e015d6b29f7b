//! How much of its time a thread sleeps.
//!
//! A message for a thread that sleeps costs a wake-up, by either carrier, and the wake-up is most of its cost. For a thread that
//! is awake a ring saves the rest of the cost.

/// What the last waits of a thread tell, in any unit of time. By default there were none, and the thread counts as asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    awake: u32,
    asleep: u32,
}

impl Rest {
    /// What [`Rest::bits`] has packed.
    pub const fn from_bits(bits: u64) -> Rest {
        Rest { awake: bits as u32, asleep: (bits >> 32) as u32 }
    }

    /// Both times in one word, which threads store and load at once.
    pub const fn bits(self) -> u64 {
        self.awake as u64 | (self.asleep as u64) << 32
    }

    /// The thread has been awake and then asleep for these times. Older times count less and less, and hardly at all if they
    /// are older than `window`.
    #[must_use]
    pub fn after(self, awake: u64, asleep: u64, window: u32) -> Rest {
        let add = |so_far: u32, more: u64| (u64::from(so_far) + more.min(u64::from(window))) as u32;
        let (mut awake, mut asleep) = (add(self.awake, awake), add(self.asleep, asleep));
        while u64::from(awake) + u64::from(asleep) > u64::from(window) {
            (awake, asleep) = (awake / 2, asleep / 2);
        }
        Rest { awake, asleep }
    }

    /// Whether the thread is awake for most of the time.
    pub fn is_busy(self) -> bool {
        self.awake > self.asleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 10_000;

    fn after(mut rest: Rest, awake: u64, asleep: u64, n: usize) -> Rest {
        for _ in 0..n {
            rest = rest.after(awake, asleep, WINDOW);
        }
        rest
    }

    #[test]
    fn busy_is_more_than_half() {
        assert!(!Rest::default().is_busy());
        for (awake, asleep, is_busy) in
            [(30, 20, true), (20, 30, false), (1, 0, true), (0, 1, false), (1 << 40, 1 << 30, false), (9000, 100, true)]
        {
            assert_eq!(after(Rest::default(), awake, asleep, 1000).is_busy(), is_busy, "{awake}, {asleep}");
        }
    }

    #[test]
    fn what_was_is_forgotten() {
        let busy = after(Rest::default(), 1 << 50, 1, 100_000);
        assert!(!after(busy, 200, 800, 40).is_busy());
        let idle = after(Rest::default(), 1, 1 << 50, 100_000);
        assert!(after(idle, 800, 200, 40).is_busy());
    }

    #[test]
    fn the_largest_numbers_are_counted() {
        let rest = Rest { awake: u32::MAX, asleep: u32::MAX / 2 }.after(u64::MAX, 0, u32::MAX);
        assert!(rest.is_busy(), "{rest:?}");
        assert_eq!(Rest::from_bits(rest.bits()), rest);
    }
}
