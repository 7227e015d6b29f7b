//! A pause in which a connection is not offered: the stack has let go of it, since its messages are long.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use sidestep_sys::{arch, clock};

/// The first pause, in microseconds. Each further one is twice as long.
const FIRST_US: u64 = 1_000_000;
/// The most doublings: about a minute.
const DOUBLINGS: u32 = 6;

#[derive(Default)]
pub struct Pause {
    /// Its end, in ticks. 0: there is none.
    end: AtomicU64,
    /// Pauses so far.
    number: AtomicU32,
}

impl Pause {
    #[inline]
    pub fn is_on(&self) -> bool {
        let end = self.end.load(Relaxed);
        end != 0 && self.lasts_until(end)
    }

    #[cold]
    fn lasts_until(&self, end: u64) -> bool {
        let lasts = arch::ticks() < end;
        if !lasts {
            self.end.store(0, Relaxed);
        }
        lasts
    }

    /// Begins one that is twice as long as the last.
    pub fn begin(&self) {
        let number = self.number.load(Relaxed);
        self.number.store(DOUBLINGS.min(number + 1), Relaxed);
        self.end.store(arch::ticks() + clock::ticks_of_us(FIRST_US << number), Relaxed);
    }

    /// The next one is as short as the first.
    pub fn forget(&self) {
        self.number.store(0, Relaxed);
    }

    /// For a new connection.
    pub fn reset(&self) {
        self.end.store(0, Relaxed);
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_us(pause: &Pause) -> u64 {
        pause.end.load(Relaxed).saturating_sub(arch::ticks()) / clock::ticks_of_us(1)
    }

    #[test]
    fn each_pause_is_twice_as_long_up_to_a_minute() {
        let pause = Pause::default();
        assert!(!pause.is_on());
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            pause.begin();
            assert!(pause.is_on());
            let left = left_us(&pause);
            assert!(
                left > (seconds - 1) * 1_000_000 && left < (seconds + 1) * 1_000_000,
                "{left} us left of {seconds} s"
            );
        }
        pause.forget();
        pause.begin();
        assert!(left_us(&pause) < 2_000_000);
        pause.reset();
        assert!(!pause.is_on());
    }

    #[test]
    fn a_pause_ends() {
        let pause = Pause::default();
        pause.end.store(arch::ticks() - 1, Relaxed);
        assert!(!pause.is_on());
        assert_eq!(pause.end.load(Relaxed), 0, "later looks ask no clock");
    }
}
