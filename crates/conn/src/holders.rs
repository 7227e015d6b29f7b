//! Which processes hold a record, in memory that all of them share: a bit for each.
//!
//! A record is in use for as long as it has a bit. Whoever removes the last bit ends the record, and nobody else does: so a record
//! is given back once, and never while a process holds it. A process adds a bit only to a record that has one already, in the same
//! atomic step: a record that has been given back stays so.

use sidestep_abi::sync::{AtomicU64, Ordering::SeqCst};

/// The processes that hold a record.
#[derive(Debug, Default)]
pub struct Holders(AtomicU64);

impl Holders {
    /// A bit for each process.
    #[inline]
    pub fn bits(&self) -> u64 {
        self.0.load(SeqCst)
    }

    /// A new connection begins in a record that nobody holds.
    pub fn begin(&self, mine: u64) {
        self.0.store(mine, SeqCst);
    }

    /// The process with the bit `mine` makes another one a holder. False: it is no holder itself.
    pub fn add_beside(&self, mine: u64, other: u64) -> bool {
        self.change(|bits| (bits & mine != 0).then_some(bits | other))
    }

    /// The process becomes a holder. False: nobody holds the record any more. If true, the record may be that of a later connection.
    /// It cannot end from then on, so the caller compares generations, and lets go of it if they differ.
    pub fn add_late(&self, bit: u64) -> bool {
        self.change(|bits| (bits != 0).then_some(bits | bit))
    }

    /// The processes of these bits are no holders any more. True: the last one was among them, and the caller must end the record.
    #[must_use]
    pub fn remove(&self, those: u64) -> bool {
        let before = self.0.fetch_and(!those, SeqCst);
        before != 0 && before & !those == 0
    }

    /// The process is no holder any more, unless it is the last one. False: nothing has changed.
    pub fn remove_unless_last(&self, bit: u64) -> bool {
        self.change(|bits| (bits & bit != 0 && bits != bit).then_some(bits & !bit))
    }

    fn change(&self, to: impl Fn(u64) -> Option<u64>) -> bool {
        self.0.fetch_update(SeqCst, SeqCst, to).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_holder_may_be_any_of_those_that_are_removed() {
        let holders = Holders::default();
        holders.begin(0b110);
        assert!(!holders.remove(0), "nobody");
        assert!(!holders.remove(0b1010));
        assert!(holders.remove(0b1101));
        assert!(!holders.remove(0b1101), "nobody holds it any more");
    }
}
