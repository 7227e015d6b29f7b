//! Facts besides the words of one direction, and decisions for which both directions count.

use crate::course::Course;
use crate::rx::{Read, Rx};
use crate::tx::Tx;
use sidestep_abi::Reason;
use sidestep_ring::Half;

/// What is known of the rest of the connection when a direction decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The peer has said that it has ended its side.
    pub peer_ended: bool,
    /// The peer has said that it has shut both directions. It still reads the ring, but takes nothing by kernel.
    pub peer_is_shut: bool,
    /// Why both directions must be on the kernel for a while: no stretch begins, and those that have begun end. None: they need
    /// not.
    pub hold: Option<Reason>,
}

/// Why a connection is held on the kernel. `away`: one of its ends may wait where no doorbell is heard. `held`: by the
/// operator.
pub fn holder(away: bool, held: bool) -> Option<Reason> {
    match (away, held) {
        (true, _) => Some(Reason::NeverWaited),
        (false, true) => Some(Reason::Detached),
        (false, false) => None,
    }
}

/// What is known about a stream whose end the kernel has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The peer has said that it has ended its side.
    pub peer_ended: bool,
    /// shutdown was called at this end, in either direction: this end expects no answer, or no complete one.
    pub is_shut: bool,
}

impl Ending {
    /// Whether the kernel would have reset the connection if it had carried all bytes: the peer was killed before it had read
    /// all bytes of this end. `died_unread`: as [`crate::Writer::has_died_unread`]; called only if it matters.
    pub fn is_reset(self, died_unread: impl FnOnce() -> bool) -> bool {
        !self.peer_ended && !self.is_shut && died_unread()
    }
}

/// Whether the kernel carries both directions, and the kernel's queue has all bytes for the reading end. Then the socket can be
/// used without this library. `queued`: length of the queue, asked before this call.
pub fn is_all_by_kernel(rx: &mut Rx, tx: &Tx, half: Half, queued: u64) -> bool {
    let all_here = rx.on_its_way() <= queued;
    // There is no stretch: this end is in none, none is announced, and none has left copies.
    all_here && rx.next(half) == Ok(Read::Kernel(u64::MAX)) && tx.course() == Course::Kernel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hears_no_doorbell_outweighs_the_operator() {
        assert_eq!(holder(false, false), None);
        assert_eq!(holder(false, true), Some(Reason::Detached));
        assert_eq!(holder(true, false), Some(Reason::NeverWaited));
        assert_eq!(holder(true, true), Some(Reason::NeverWaited), "or a program would wait for ever");
    }

    #[test]
    fn a_peer_that_died_with_bytes_unread_has_reset_the_connection() {
        let killed = Ending::default();
        assert!(killed.is_reset(|| true) && !killed.is_reset(|| false));
        for said in [Ending { peer_ended: true, ..killed }, Ending { is_shut: true, ..killed }] {
            assert!(!said.is_reset(|| true), "{said:?}");
        }
    }
}
