//! Whether a thread should spin before it sleeps, and for how long, decided by earlier waits in the same place.
//!
//! A sleep costs both ends time: the waker makes a system call, and the sleeper must get back onto a processor. A spin that is
//! long enough saves that time and costs processor time. A spin that is too short costs processor time for nothing. So each
//! place has an account. Each wait adds what a spin would have saved or cost, whether the thread has spun or slept. Threads
//! spin only while the account is in credit.

/// The longest spin, in microseconds.
pub const MAX_US: u32 = 50;
/// The shortest budget of a spin, in microseconds.
const MIN_US: u32 = 6;
/// Cost of a sleep for both ends, in microseconds: processor time, and time until the sleeper runs.
const SLEEP_US: u32 = 100;
/// The budget of a spin is this many times the usual short wait.
const MARGIN: u32 = 3;
/// Bounds of the account, in microseconds. They limit how much of the past counts.
const MOST_CREDIT: i32 = 1000;

/// The account of one place. By default it is empty, and threads do not spin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spin {
    /// Usual length of waits of at most [`MAX_US`], in eighths of a microsecond.
    usual: u16,
    /// Savings of spins less their cost, in microseconds of processor time.
    credit: i16,
}

impl Spin {
    /// What [`Spin::bits`] has packed.
    pub const fn from_bits(bits: u32) -> Spin {
        Spin { usual: bits as u16, credit: (bits >> 16) as i16 }
    }

    /// The account in one word, which threads store and load at once.
    pub const fn bits(self) -> u32 {
        self.usual as u32 | (self.credit as u16 as u32) << 16
    }

    /// How long to spin, in microseconds; None: sleep at once.
    #[inline]
    pub fn budget(self) -> Option<u32> {
        (self.credit > 0).then(|| self.stake())
    }

    fn stake(self) -> u32 {
        (MARGIN * u32::from(self.usual) / 8).clamp(MIN_US, MAX_US)
    }

    /// A wait has lasted `us` microseconds, spun or slept.
    #[must_use]
    pub fn after(mut self, us: u32) -> Spin {
        let change = if us <= self.stake() { (SLEEP_US - us) as i32 } else { -(self.stake() as i32) };
        self.credit = (i32::from(self.credit) + change).clamp(-MOST_CREDIT, MOST_CREDIT) as i16;
        if us <= MAX_US {
            let usual = i32::from(self.usual);
            self.usual = (usual + (8 * us as i32 - usual) / 4) as u16;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The account after `n` waits; `waits` repeats.
    fn after(mut spin: Spin, waits: &[u32], n: usize) -> Spin {
        for us in waits.iter().cycle().take(n) {
            spin = spin.after(*us);
        }
        spin
    }

    #[test]
    fn short_waits_are_spun_for_soon() {
        for us in [0, 1, 5, 10, 20, 40, MAX_US - 1] {
            let spin = after(Spin::default(), &[us], 100);
            assert!(spin.budget().is_some_and(|budget| budget >= us), "{us} µs: {spin:?}");
        }
    }

    #[test]
    fn long_waits_are_slept_for() {
        for us in [MAX_US + 1, 100, 1_000_000, u32::MAX] {
            assert_eq!(after(Spin::default(), &[us], 100).budget(), None, "{us} µs");
        }
    }

    /// One request now and then: one wait in four is short.
    #[test]
    fn a_short_wait_among_long_ones_is_slept_for() {
        let spin = after(Spin::default(), &[30, 200, 150, 600], 1000);
        assert_eq!(spin.budget(), None, "{spin:?}");
    }

    #[test]
    fn a_long_wait_among_short_ones_changes_nothing() {
        let spin = after(Spin::default(), &[10; 100], 1000);
        assert!(spin.after(5000).budget().is_some());
    }

    /// A place that was used in one way for long is used in another way.
    #[test]
    fn what_was_learnt_is_forgotten() {
        let spun = after(Spin::default(), &[10], 100_000);
        assert_eq!(after(spun, &[1000], 50).budget(), None);
        let slept = after(Spin::default(), &[1000], 100_000);
        assert!(after(slept, &[10], 200).budget().is_some());
    }

    #[test]
    fn bits_are_the_same() {
        for spin in [Spin::default(), after(Spin::default(), &[1000], 99), after(Spin::default(), &[33], 99)] {
            assert_eq!(Spin::from_bits(spin.bits()), spin);
        }
    }
}
