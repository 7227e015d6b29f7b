//! The reason code of a connection that ends without ever having used a ring.

use crate::record::{Conn, flag};
use crate::settings;
use core::sync::atomic::Ordering::*;
use sidestep_abi::{Reason, env};
use sidestep_conn::Phase;
use sidestep_conn::worth::Threshold;

/// Counts the reason, if the connection has none yet.
pub fn excuse(c: &Conn) {
    let phase = c.phase.phase();
    if phase.is_attached() || phase == Phase::Closed || c.has(flag::REASONED) {
        return;
    }
    let known = Reason::from_code(c.reason.load(Relaxed) as u8);
    c.blame(match (phase, known) {
        (Phase::Offered { passive: false, .. }, _) => Reason::PeerAbsent,
        (Phase::Kernel { .. } | Phase::Assigned { .. } | Phase::Demoted { .. }, Some(reason)) => reason,
        (Phase::Kernel { .. } | Phase::Offered { passive: true, .. }, _) if has_many_operations(c) => Reason::Rare,
        _ => Reason::Short,
    });
}

/// Whether the connection has had enough operations for an offer. If it was not offered, they were too far apart.
fn has_many_operations(c: &Conn) -> bool {
    matches!(settings::get().upgrade_after, Threshold::Auto) && c.ops.load(Relaxed) >= env::QUICK_OPS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena;
    use sidestep_conn::Event::{self, *};

    /// The reason that a connection with these events gets.
    fn reason(life: &[Event], known: Option<Reason>, ops: u32) -> Option<Reason> {
        let index = arena::alloc().expect("a record");
        let c = arena::conn(index);
        c.reset(0, arena::bit());
        life.iter().for_each(|event| assert!(c.phase.go(*event).is_some(), "{event:?}"));
        c.reason.store(known.map_or(0, |reason| reason as u32), Relaxed);
        c.ops.store(ops, Relaxed);
        excuse(c);
        let found = if c.has(flag::REASONED) { Reason::from_code(c.reason.load(Relaxed) as u8) } else { None };
        arena::let_go(index);
        found
    }

    #[test]
    fn each_way_to_stay_on_the_kernel_has_its_reason() {
        let (passive, asking) = (Offer { passive: true }, Offer { passive: false });
        assert_eq!(reason(&[], None, 1), Some(Reason::Short));
        assert_eq!(reason(&[], None, env::QUICK_OPS), Some(Reason::Rare));
        assert_eq!(reason(&[], Some(Reason::Shared), env::QUICK_OPS), Some(Reason::Shared));
        assert_eq!(reason(&[asking], None, 100), Some(Reason::PeerAbsent));
        assert_eq!(reason(&[asking], Some(Reason::NoBroker), 100), Some(Reason::PeerAbsent));
        assert_eq!(reason(&[passive], Some(Reason::NoBroker), 100), Some(Reason::Rare));
        assert_eq!(reason(&[asking, Assign], None, 100), Some(Reason::Short));
    }

    #[test]
    fn what_was_in_a_ring_needs_none() {
        assert_eq!(reason(&[Offer { passive: false }, Assign, Enter], None, 100), None);
    }
}
