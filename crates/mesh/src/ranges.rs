//! Allocates ranges of the slots array, and numbers for backends and Services.

use std::collections::{BTreeMap, BTreeSet};

/// An allocator of ranges of a fixed number of elements. Adjacent free ranges are merged.
#[derive(Debug)]
pub struct Ranges {
    /// First element -> length of each free range.
    free: BTreeMap<u32, u32>,
    left: u32,
}

impl Ranges {
    /// `size` elements, from 0, all free.
    pub fn new(size: u32) -> Ranges {
        Ranges { free: BTreeMap::from([(0, size)]), left: size }
    }

    /// The first free range that is long enough; None: there is none.
    pub fn claim(&mut self, length: u32) -> Option<u32> {
        let (&first, &found) = self.free.iter().find(|(_, free)| **free >= length)?;
        self.free.remove(&first);
        if found > length {
            self.free.insert(first + length, found - length);
        }
        self.left -= length;
        Some(first)
    }

    /// Takes exactly this range, which an earlier process has used. False: part of it is taken.
    pub fn claim_at(&mut self, first: u32, length: u32) -> bool {
        let Some((&start, &found)) = self.free.range(..=first).next_back() else { return false };
        if start + found < first + length {
            return false;
        }
        self.free.remove(&start);
        if start < first {
            self.free.insert(start, first - start);
        }
        if start + found > first + length {
            self.free.insert(first + length, start + found - first - length);
        }
        self.left -= length;
        true
    }

    /// Frees a range that was claimed.
    pub fn give(&mut self, first: u32, length: u32) {
        let (mut start, mut end) = (first, first + length);
        if let Some((&before, &long)) = self.free.range(..first).next_back() {
            debug_assert!(before + long <= first, "a range was freed twice");
            if before + long == first {
                start = before;
            }
        }
        if let Some(&long) = self.free.get(&end) {
            self.free.remove(&end);
            end += long;
        }
        self.free.insert(start, end - start);
        self.left += length;
    }

    /// How many elements are free.
    pub fn left(&self) -> u32 {
        self.left
    }
}

/// An allocator of numbers from 1 on. 0 is never given: in the maps it means none.
#[derive(Debug)]
pub struct Numbers {
    given_back: BTreeSet<u32>,
    next: u32,
    size: u32,
}

impl Numbers {
    /// Numbers below `size`.
    pub fn new(size: u32) -> Numbers {
        Numbers { given_back: BTreeSet::new(), next: 1, size }
    }

    /// A number that was given back, the smallest first, else the next new one. None: all are in use.
    pub fn claim(&mut self) -> Option<u32> {
        self.given_back.pop_first().or_else(|| {
            let number = self.next;
            (number < self.size).then(|| {
                self.next += 1;
                number
            })
        })
    }

    /// Takes exactly this number. False: it is taken, or out of range.
    pub fn claim_at(&mut self, number: u32) -> bool {
        if number == 0 || number >= self.size {
            return false;
        }
        while self.next <= number {
            self.given_back.insert(self.next);
            self.next += 1;
        }
        self.given_back.remove(&number)
    }

    /// Frees a number that was claimed.
    pub fn give(&mut self, number: u32) {
        let fresh = self.given_back.insert(number);
        debug_assert!(fresh && number < self.next, "a number was freed twice");
    }

    /// How many numbers are in use.
    pub fn used(&self) -> u32 {
        self.next - 1 - self.given_back.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_never_overlap_and_come_back(steps in prop::collection::vec((any::<bool>(), 1u32..40), 1..200)) {
            let (mut ranges, mut held): (_, Vec<(u32, u32)>) = (Ranges::new(500), Vec::new());
            for (take, length) in steps {
                if take || held.is_empty() {
                    if let Some(first) = ranges.claim(length) {
                        prop_assert!(first + length <= 500);
                        prop_assert!(held.iter().all(|(f, l)| first + length <= *f || f + l <= first));
                        held.push((first, length));
                    }
                } else {
                    let (first, length) = held.swap_remove(length as usize % held.len());
                    ranges.give(first, length);
                }
                prop_assert_eq!(ranges.left(), 500 - held.iter().map(|(_, l)| l).sum::<u32>());
            }
            for (first, length) in held {
                ranges.give(first, length);
            }
            prop_assert_eq!(ranges.claim(500), Some(0));
        }
    }

    #[test]
    fn what_was_used_before_is_not_given() {
        let mut ranges = Ranges::new(10);
        assert!(ranges.claim_at(4, 2));
        assert!(!ranges.claim_at(5, 2));
        assert_eq!((ranges.claim(4), ranges.claim(4), ranges.claim(1)), (Some(0), Some(6), None));
        let mut numbers = Numbers::new(4);
        assert!(numbers.claim_at(2));
        assert!(!numbers.claim_at(2) && !numbers.claim_at(0) && !numbers.claim_at(4));
        assert_eq!((numbers.claim(), numbers.claim(), numbers.claim(), numbers.used()), (Some(1), Some(3), None, 3));
    }
}
