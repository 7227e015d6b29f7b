//! Children that are being forked.

use super::memory::FAMILY;

/// Beside the number of a [`Birth`], in place of a process number: neither the child nor its parent has stored that yet.
pub(super) const UNBORN: u32 = 1 << 30;
pub(super) const PLACES: u32 = FAMILY as u32;

/// A child that is being forked, and the place that is reserved for it. No other child of the family has lately had the same number.
#[derive(Clone, Copy)]
pub struct Birth(u32);

impl Birth {
    /// So many children later the numbers begin anew.
    pub(super) const SERIALS: u32 = UNBORN / PLACES;

    /// The birth with this number.
    pub fn of(number: u32) -> Birth {
        Birth(number)
    }

    pub fn number(self) -> u32 {
        self.0
    }

    pub fn place(self) -> u32 {
        self.0 % PLACES
    }

    /// What stands at the place meanwhile.
    pub(super) fn word(self) -> u32 {
        UNBORN | self.0
    }
}
