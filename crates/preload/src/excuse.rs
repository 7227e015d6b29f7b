//! Why a connection that ends never made it into a ring.

use crate::record::{Conn, flag, state};
use crate::settings::{self, Threshold};
use core::sync::atomic::Ordering::*;
use sidestep_abi::{Reason, env};

/// Counts the reason, if the connection has none yet.
pub fn excuse(c: &Conn) {
    if c.state.load(Acquire) >= state::ATTACHED || c.has(flag::REASONED) {
        return;
    }
    let is_offered = c.state.load(Acquire) == state::OFFERED;
    let reason = match Reason::from_code(c.reason.load(Relaxed) as u8) {
        _ if is_offered && !c.has(flag::PASSIVE) => Reason::PeerAbsent,
        Some(reason) if !is_offered => reason,
        _ if is_rare(c) => Reason::Rare,
        _ => Reason::Short,
    };
    c.blame(reason);
}

/// Whether the connection has seen enough operations, but not in quick succession.
fn is_rare(c: &Conn) -> bool {
    let is_auto = matches!(settings::get().upgrade_after, Threshold::Auto);
    is_auto && c.ops.load(Relaxed) >= env::QUICK_OPS && (c.state.load(Relaxed) < state::OFFERED || c.has(flag::PASSIVE))
}
