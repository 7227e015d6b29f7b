//! Counts the threads inside native calls on a connection, which delay its upgrade. A record may be reused for another
//! connection while threads are still inside calls on the earlier one: their leaving does not change the new gate's count.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// Number of the connection in the upper half, count of threads in the lower half.
pub struct Gate(AtomicU64);

const HALF: u32 = 32;

impl Gate {
    /// Adds a thread. Returns the argument for [`Gate::leave`].
    #[inline]
    pub fn enter(&self) -> u32 {
        (self.0.fetch_add(1, SeqCst) >> HALF) as u32
    }

    /// Removes a thread that entered for connection `number`. No effect if the gate is another connection's by now.
    #[inline]
    pub fn leave(&self, number: u32) {
        let one_less = |word: u64| ((word >> HALF) as u32 == number && word as u32 != 0).then(|| word - 1);
        let _ = self.0.fetch_update(SeqCst, SeqCst, one_less);
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.load(SeqCst) as u32 == 0
    }

    /// Starts the gate of another connection.
    pub fn renew(&self) {
        let next = |word: u64| Some((word >> HALF).wrapping_add(1) << HALF);
        let _ = self.0.fetch_update(SeqCst, SeqCst, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_entered_for_another_connection_changes_nothing() {
        let gate = Gate(AtomicU64::new(u64::MAX << HALF));
        let old = gate.enter();
        gate.renew();
        assert!(gate.is_empty());
        let new = gate.enter();
        gate.leave(old);
        assert!(!gate.is_empty());
        gate.leave(new);
        assert!(gate.is_empty());
        gate.leave(new);
        assert!(gate.is_empty());
    }
}
