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

/// How a stream has ended whose end the kernel has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The peer has said that it has ended its side.
    pub peer_ended: bool,
    /// shutdown was called at this end, in either way: it expects no answer, or none in full.
    pub is_shut: bool,
    /// The peer was seen to be gone while bytes for it were on their way back to the kernel.
    pub died_unread: bool,
}

impl Ending {
    /// Whether the kernel would have reset the connection, had it carried all bytes: the peer was killed before it had read what
    /// this end has sent. `unread`: how much of that is in a ring, asked for only if it matters.
    pub fn is_reset(self, unread: impl FnOnce() -> u64) -> bool {
        !self.peer_ended && !self.is_shut && (self.died_unread || unread() > 0)
    }
}

/// Whether the kernel carries both directions, and what is on its way to the reading end is in the kernel's queue: then whoever
/// reads and writes the socket without this library misses nothing. `queued`: the length of that queue, asked before.
pub fn is_all_by_kernel(rx: &mut Rx, tx: &Tx, half: Half, queued: u64) -> bool {
    let all_here = rx.on_its_way() <= queued;
    // No stretch: neither one that this end is in, nor one that has been announced, nor copies of one.
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
        assert!(killed.is_reset(|| 1) && !killed.is_reset(|| 0));
        assert!(Ending { died_unread: true, ..killed }.is_reset(|| 0), "they are the kernel's by now");
        for said in [Ending { peer_ended: true, ..killed }, Ending { is_shut: true, ..killed }] {
            assert!(!Ending { died_unread: true, ..said }.is_reset(|| 1), "{said:?}");
        }
    }
}
