//! Why a connection that ends never made it into a ring.

use crate::record::{Conn, flag};
use crate::settings::{self, Threshold};
use core::sync::atomic::Ordering::*;
use sidestep_abi::{Reason, env};
use sidestep_conn::Phase;

/// Counts the reason, if the connection has none yet.
pub fn excuse(c: &Conn) {
    let phase = c.phase.phase();
    if matches!(phase, Phase::Attached | Phase::Closed) || c.has(flag::REASONED) {
        return;
    }
    let known = Reason::from_code(c.reason.load(Relaxed) as u8);
    c.blame(match (phase, known) {
        (Phase::Offered { passive: false }, _) => Reason::PeerAbsent,
        (Phase::Kernel | Phase::Assigned | Phase::Demoted, Some(reason)) => reason,
        (Phase::Kernel | Phase::Offered { passive: true }, _) if has_many_operations(c) => Reason::Rare,
        _ => Reason::Short,
    });
}

/// Whether the connection has seen enough operations for an offer, so that they were not in quick succession.
fn has_many_operations(c: &Conn) -> bool {
    matches!(settings::get().upgrade_after, Threshold::Auto) && c.ops.load(Relaxed) >= env::QUICK_OPS
}
