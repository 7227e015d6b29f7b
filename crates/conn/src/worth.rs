//! Whether a connection is worth a ring, as far as one end can tell.

use sidestep_abi::env::{PASSIVE_OPS, QUICK_OPS};

/// When a connection counts as long-lived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// After operations in quick succession.
    Auto,
    /// After so many successful reads and writes.
    Ops(u32),
    /// After so many bytes, in both directions together.
    Bytes(u64),
}

/// What to do for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// The kernel carries on.
    Nothing,
    /// Make a passive offer: this end would not profit, the other one may.
    Offering,
    /// Ask for a ring.
    Asking,
}

/// Decides on a connection that the kernel carries. Measures that the threshold does not need are not called.
pub fn worth(threshold: Threshold, ops: u32, quick_ops: impl FnOnce() -> u32, bytes: impl FnOnce() -> u64) -> Worth {
    let is_worth_it = match threshold {
        Threshold::Auto => quick_ops() >= QUICK_OPS,
        Threshold::Ops(n) => ops >= n,
        Threshold::Bytes(n) => bytes() >= n,
    };
    match threshold {
        _ if is_worth_it => Worth::Asking,
        Threshold::Auto if ops >= PASSIVE_OPS => Worth::Offering,
        _ => Worth::Nothing,
    }
}

/// Number of operations in quick succession, after one more that comes `gap` after the last, in any unit. `quick`: longest gap
/// that counts as quick. Operations of a busy thread always count, and so does a connection's first.
pub fn quick_ops(before: u32, ops: u32, gap: u64, quick: u64, is_busy: bool) -> u32 {
    if ops == 1 || gap <= quick || is_busy { before.saturating_add(1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(threshold: Threshold, ops: u32, quick: u32, bytes: u64) -> Worth {
        worth(threshold, ops, || quick, || bytes)
    }

    #[test]
    fn each_threshold_looks_at_its_own_measure() {
        for (threshold, below, at) in [
            (Threshold::Auto, (63, QUICK_OPS - 1, 1 << 40), (QUICK_OPS, QUICK_OPS, 0)),
            (Threshold::Ops(9), (8, 1000, 1 << 40), (9, 0, 0)),
            (Threshold::Bytes(4096), (1 << 20, 1000, 4095), (1, 0, 4096)),
        ] {
            assert_eq!(of(threshold, below.0, below.1, below.2), Worth::Nothing, "{threshold:?}");
            assert_eq!(of(threshold, at.0, at.1, at.2), Worth::Asking, "{threshold:?}");
        }
    }

    #[test]
    fn many_operations_far_apart_are_offered_for_the_other_end() {
        assert_eq!(of(Threshold::Auto, PASSIVE_OPS, 0, 0), Worth::Offering);
        assert_eq!(of(Threshold::Ops(1000), PASSIVE_OPS, 0, 0), Worth::Nothing, "only where nobody has said when");
    }

    #[test]
    fn a_pause_begins_the_count_again() {
        let mut quick = 0;
        for (ops, gap) in [(1, u64::MAX), (2, 10), (3, 10)] {
            quick = quick_ops(quick, ops, gap, 10, false);
        }
        assert_eq!(quick, 3);
        assert_eq!(quick_ops(quick, 4, 11, 10, true), 4, "a busy thread pauses for its own work");
        assert_eq!(quick_ops(quick, 4, 11, 10, false), 0);
        assert_eq!(quick_ops(u32::MAX, 4, 0, 10, false), u32::MAX);
    }
}
