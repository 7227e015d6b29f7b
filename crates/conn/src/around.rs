//! What an end knows beside the words of a direction, and what it decides with both directions in view.

use crate::course::Course;
use crate::rx::{Read, Rx};
use crate::tx::Tx;
use sidestep_abi::Reason;
use sidestep_ring::Half;

/// What is known of a connection when one of its directions decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The peer has said that it has ended its side.
    pub peer_ended: bool,
    /// Who wants both directions on the kernel for the time being: no stretch begins, and those that have begun end.
    pub hold: Option<Reason>,
}

/// Who holds a connection on the kernel. `away`: one of its ends may wait where no doorbell is heard. `held`: the operator.
pub fn holder(away: bool, held: bool) -> Option<Reason> {
    match (away, held) {
        (true, _) => Some(Reason::NeverWaited),
        (false, true) => Some(Reason::Detached),
        (false, false) => None,
    }
}

/// Whether the kernel carries both directions, and what is on its way to the reading end is in the kernel's queue: then whoever
/// reads and writes the socket without this library misses nothing. `queued`: the length of that queue, asked before.
pub fn is_all_by_kernel(rx: &mut Rx, tx: &Tx, half: Half, queued: u64) -> bool {
    let all_here = rx.on_its_way() <= queued;
    // No stretch: neither one that this end is in, nor one that has been announced, nor copies of one.
    all_here && rx.next(half) == Ok(Read::Kernel(u64::MAX)) && tx.course() == Course::Kernel
}
