//! Backends and their numbers. A backend that several Services share has one number.

use crate::address::Endpoint;
use crate::ranges::Numbers;
use std::collections::HashMap;

#[derive(Debug)]
pub struct Backends {
    numbers: Numbers,
    known: HashMap<Endpoint, Known>,
}

#[derive(Debug)]
struct Known {
    number: u32,
    /// Lists that hold it.
    users: u32,
}

/// What a backend's number is, and whether the data plane has yet to hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub number: u32,
    pub fresh: bool,
}

/// What has become of a number from an earlier life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heirloom {
    /// It stands for its endpoint.
    Known,
    /// Another one does, since that life ended in the middle of a change. It is in use, though, and taken.
    Double,
    /// It is out of range, or taken already.
    Refused,
}

impl Backends {
    pub fn new(size: u32) -> Backends {
        Backends { numbers: Numbers::new(size), known: HashMap::new() }
    }

    /// The data plane knows this one from before. It has one user: whoever inherits it.
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

    /// One more user. None: there is no number left.
    pub fn hold(&mut self, endpoint: Endpoint) -> Option<Numbered> {
        if let Some(known) = self.known.get_mut(&endpoint) {
            known.users += 1;
            return Some(Numbered { number: known.number, fresh: false });
        }
        let number = self.numbers.claim()?;
        self.known.insert(endpoint, Known { number, users: 1 });
        Some(Numbered { number, fresh: true })
    }

    /// One user less. The number, if that was the last one: it is to be given back when nobody can read it any more.
    pub fn release(&mut self, endpoint: &Endpoint) -> Option<u32> {
        let known = self.known.get_mut(endpoint)?;
        known.users -= 1;
        if known.users > 0 {
            return None;
        }
        self.known.remove(endpoint).map(|known| known.number)
    }

    pub fn give(&mut self, number: u32) {
        self.numbers.give(number);
    }

    pub fn number(&self, endpoint: &Endpoint) -> Option<u32> {
        self.known.get(endpoint).map(|known| known.number)
    }

    /// Every one with its number, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Endpoint, u32)> {
        self.known.iter().map(|(endpoint, known)| (endpoint, known.number))
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
