//! Backends and their numbers. A backend that several Services share has one number.

use crate::address::Endpoint;
use crate::ranges::Numbers;
use std::collections::HashMap;

/// Counts for each endpoint how many lists contain it, so that its number is freed after the last one.
#[derive(Debug)]
pub struct Backends {
    numbers: Numbers,
    known: HashMap<Endpoint, Known>,
}

#[derive(Debug)]
struct Known {
    number: u32,
    /// How many lists contain it.
    users: u32,
}

/// A backend's number, and whether the data plane still has to be told of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Index in the data plane's table of backends; never 0.
    pub number: u32,
    /// The number was just assigned: the caller must write the backend before any list refers to it.
    pub fresh: bool,
}

/// What happens to a number from an earlier process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heirloom {
    /// It is the endpoint's number.
    Known,
    /// The endpoint has another number already, since the earlier process ended in the middle of a change. This one is in use,
    /// too.
    Double,
    /// It is out of range, or in use already.
    Refused,
}

impl Backends {
    /// `size`: the length of the data plane's table. Numbers 1 to `size` - 1 can be assigned.
    pub fn new(size: u32) -> Backends {
        Backends { numbers: Numbers::new(size), known: HashMap::new() }
    }

    /// Takes over a backend that the data plane has already. It gets one user, the inherited list.
    pub fn inherit(&mut self, number: u32, endpoint: Endpoint) -> Heirloom {
        if !self.numbers.claim_at(number) {
            return Heirloom::Refused;
        }
        if self.known.contains_key(&endpoint) {
            return Heirloom::Double;
        }
        self.known.insert(endpoint, Known { number, users: 1 });
        Heirloom::Known
    }

    /// Takes this number for nobody, so that it is not given out. False: it is taken already, or out of range.
    pub fn reserve(&mut self, number: u32) -> bool {
        self.numbers.claim_at(number)
    }

    /// Adds a user. None: there is no number left.
    pub fn hold(&mut self, endpoint: Endpoint) -> Option<Numbered> {
        if let Some(known) = self.known.get_mut(&endpoint) {
            known.users += 1;
            return Some(Numbered { number: known.number, fresh: false });
        }
        let number = self.numbers.claim()?;
        self.known.insert(endpoint, Known { number, users: 1 });
        Some(Numbered { number, fresh: true })
    }

    /// Removes a user. Returns the number if that was the last one: give it back when no program can read it any more.
    pub fn release(&mut self, endpoint: &Endpoint) -> Option<u32> {
        let known = self.known.get_mut(endpoint)?;
        known.users -= 1;
        if known.users > 0 {
            return None;
        }
        self.known.remove(endpoint).map(|known| known.number)
    }

    /// Makes a number that `release` returned, a double, or a reserved one, available again.
    pub fn give(&mut self, number: u32) {
        self.numbers.give(number);
    }

    /// None: no list contains the endpoint.
    pub fn number(&self, endpoint: &Endpoint) -> Option<u32> {
        self.known.get(endpoint).map(|known| known.number)
    }

    /// All backends with their numbers, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Endpoint, u32)> {
        self.known.iter().map(|(endpoint, known)| (endpoint, known.number))
    }

    /// How many numbers are taken: also those that programs may still read.
    pub fn used(&self) -> u32 {
        self.numbers.used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_until_it_is_given_back() {
        let mut backends = Backends::new(8);
        let endpoint = Endpoint::new([10, 0, 0, 1].into(), 80);
        let number = backends.hold(endpoint).expect("a number").number;
        assert_eq!(backends.release(&endpoint), Some(number));
        assert_eq!((backends.number(&endpoint), backends.used()), (None, 1), "programs may still read it");
        backends.give(number);
        assert_eq!(backends.used(), 0);
    }
}
