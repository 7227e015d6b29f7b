//! Two lists become one: what the kernel has listed, and what the rings have.

use crate::list::{GROUPS, List, Rank};

/// One entry of what epoll_wait(2) has returned, as [`crate::Entry`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// With a rank if it has been reported before, and has been ready since.
    Native(Option<Rank>),
    Bell(u32),
    /// It must be in the list. With its rank there if its place in the list is its place among rings, too.
    Ours(u32, Option<Rank>),
    Nothing,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The first of the list.
    First,
    /// This registration, wherever it stands in the list.
    Ours(u32),
    /// The kernel's entry with this index.
    Native(usize),
}

/// A merge under way.
pub struct Merge {
    /// Index of the kernel's next entry.
    at: usize,
    entries: usize,
    /// Events for the program among those that are left. The kernel has handed them over: each must find room.
    natives: usize,
    armed: u64,
    heard: [Option<u64>; GROUPS],
    /// Groups whose doorbell we have passed in the kernel's list, a bit each.
    passed: u32,
    /// News that arrived until then came before what is left of the kernel's list.
    until: u64,
    /// What was reported later than this comes after what the kernel has not told before.
    newest: Rank,
}

impl Merge {
    /// For so many entries of the kernel's, with so many events for the program among them. `stale`: groups whose doorbell
    /// was rung for news that has been taken before, a bit each. `newest`: what was reported later comes after what the
    /// kernel has not told before.
    pub fn new(entries: usize, natives: usize, list: &List, stale: u32, newest: Rank) -> Merge {
        let heard = core::array::from_fn(|group| list.heard(group as u32).filter(|_| stale & 1 << group == 0));
        Merge { at: 0, entries, natives, armed: list.armed(), heard, passed: stale, until: 0, newest }
    }

    /// What comes next, with room for so many events. `first`: rank and group of the list's first entry. `listed` tells
    /// what an entry of the kernel's is, and `arrived` when it came, if that can be told. None: nothing more.
    pub fn turn(
        &mut self,
        first: Option<(Rank, u32)>,
        room: usize,
        mut listed: impl FnMut(usize) -> Listed,
        mut arrived: impl FnMut(usize, u64) -> Option<u64>,
    ) -> Option<Turn> {
        let has_room = room > self.natives;
        let first = first.filter(|_| has_room);
        while self.at < self.entries {
            let entry = listed(self.at);
            if first.is_some_and(|first| self.precedes(first, entry, &mut arrived)) {
                return Some(Turn::First);
            }
            let at = self.at;
            self.at += 1;
            match entry {
                Listed::Native(_) => {
                    self.natives -= 1;
                    return Some(Turn::Native(at));
                }
                Listed::Ours(number, _) if has_room => return Some(Turn::Ours(number)),
                Listed::Ours(..) | Listed::Nothing => {}
                Listed::Bell(group) => self.pass(group),
            }
        }
        first.map(|_| Turn::First)
    }

    fn pass(&mut self, group: u32) {
        self.passed |= 1 << group;
        if let Some(Some(first)) = self.heard.get(group as usize) {
            self.until = self.until.max(*first);
        }
    }

    /// Groups whose doorbell was in the kernel's list, a bit each.
    pub fn passed(&self) -> u32 {
        self.passed
    }

    fn precedes(
        &self,
        (rank, group): (Rank, u32),
        entry: Listed,
        arrived: &mut impl FnMut(usize, u64) -> Option<u64>,
    ) -> bool {
        let Some(news) = rank.arrived() else {
            return match entry {
                Listed::Native(Some(native)) => rank < native,
                Listed::Bell(_) => true,
                _ => rank <= self.newest,
            };
        };
        if matches!(entry, Listed::Native(Some(_))) {
            return false; // it has been ready for longer
        }
        if self.armed != 0 && news < self.armed || news <= self.until {
            return true;
        }
        // Its doorbell was rung for another before it, or was not heard of at all: only the clock could tell.
        match entry {
            Listed::Native(_) => match arrived(self.at, news) {
                Some(native) => news <= native,
                None => self.passed & 1 << group != 0,
            },
            Listed::Ours(_, Some(listed)) => rank <= listed,
            _ => self.passed & 1 << group != 0,
        }
    }
}
