//! Grace periods: what programs may still be reading is left as it is for so long.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many have been waited for.
static PERIODS: AtomicU64 = AtomicU64::new(0);

/// Returns when no program still uses what a table led to before the last change. Programs run under RCU, and this call of
/// membarrier(2) waits for a grace period of it on every machine with more than one processor. On one processor, or where
/// the call is not allowed, a rest does: a program takes microseconds.
pub(crate) fn wait_for_readers() {
    // SAFETY: no memory is involved.
    if unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    PERIODS.fetch_add(1, Ordering::Relaxed);
}

/// Keys whose entries have been written within this grace period. Programs bear it that an entry is exchanged while they
/// read it, but not twice (crates/bpf/src/reading.h).
#[derive(Default)]
pub(crate) struct Written {
    period: u64,
    keys: HashSet<u64>,
}

impl Written {
    /// Waits if one of these was written within this period, and notes them. Two keys may be taken for one another: that
    /// costs a wait.
    pub fn space_out<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        let keys: Vec<u64> = keys.map(digest).collect();
        self.begin_if_over();
        if keys.iter().any(|key| self.keys.contains(key)) {
            wait_for_readers();
            self.begin_if_over();
        }
        self.keys.extend(keys);
    }

    fn begin_if_over(&mut self) {
        let period = PERIODS.load(Ordering::Relaxed);
        if self.period != period {
            self.period = period;
            self.keys.clear();
        }
    }
}

fn digest(key: &[u8]) -> u64 {
    let mut digest = DefaultHasher::new();
    key.hash(&mut digest);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_waits_and_another_does_not() {
        let mut written = Written::default();
        let periods = || PERIODS.load(Ordering::Relaxed);
        let before = periods();
        written.space_out([b"a".as_slice(), b"b"].into_iter());
        written.space_out([b"c".as_slice()].into_iter());
        assert_eq!(periods(), before);
        written.space_out([b"b".as_slice()].into_iter());
        assert_eq!(periods(), before + 1);
        // That was a period for all of them, but not for b.
        written.space_out([b"a".as_slice()].into_iter());
        assert_eq!(periods(), before + 1);
        written.space_out([b"b".as_slice()].into_iter());
        assert_eq!(periods(), before + 2);
    }
}
