//! One wait: what is reported, in which order.

use crate::list::{List, Nodes, Rank};
use crate::merge::{Listed, Merge, Turn};
use crate::order::ReportOrder;

/// One entry of what epoll_wait(2) has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// An event for the program.
    Native {
        /// epoll_event.data.
        data: u64,
        /// The kernel reports it again as long as it is ready.
        is_level: bool,
    },
    /// The doorbell of this group: its first news came at this point.
    Bell(u32),
    /// The kernel has an event for a registration of ours.
    Ours {
        /// Number of the registration.
        number: u32,
        /// The event is its news, whose place is here. If not, the registration has been listed for other news before, and
        /// keeps that place.
        is_first: bool,
    },
    /// Nothing any more.
    Nothing,
}

/// What came of looking at a registration of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked {
    /// It has nothing to report.
    Nothing,
    /// It has been reported.
    Reported {
        /// It is reported again as long as it is ready (level-triggered).
        again: bool,
    },
    /// The program could not be told; it is to be looked at again.
    Unreported,
}

/// What the kernel has answered.
#[derive(Clone, Copy, Default, Debug)]
pub struct Asked {
    /// How many.
    pub entries: usize,
    /// Events for the program among them.
    pub natives: usize,
    /// There may be more.
    pub more: bool,
}

/// The set that a wait is for.
pub trait Set: Nodes {
    /// What the kernel's entry with this index is.
    fn entry(&mut self, at: usize) -> Entry;
    /// Looks at a registration of ours, and reports what is ready there.
    fn poll(&mut self, number: u32) -> Looked;
    /// Reports an event of the kernel's. False: the program could not be told.
    fn hand_over(&mut self, at: usize) -> bool;
    /// When an event of the kernel's has arrived, in ticks, if that can be told and is worth the question: there is news of
    /// a ring that came at `news`.
    fn arrived(&mut self, at: usize, news: u64) -> Option<u64>;
}

/// One wait, from its beginning on.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Events of the set that had been reported before.
    before: u64,
    /// Events that this wait has reported before the kernel was asked.
    pub reported: usize,
}

/// What has become of an event of the kernel's.
enum Handed {
    Over,
    /// The kernel was asked twice, and has named it twice.
    Again,
    /// The program could not be told.
    Back,
}

/// What is known of the events of one set.
#[derive(Clone, Copy, Default, Debug)]
pub struct Ready {
    /// News of registrations of ours.
    pub list: List,
    order: ReportOrder,
    /// Events reported so far.
    count: u64,
    /// Groups whose doorbell will be in the kernel's list for news that has been taken, a bit each.
    stale: u32,
    passed: u32,
    /// The kernel had more than the last wait had room for.
    more: bool,
    /// Events reported when the kernel last had nothing more: what it has left came before those reported since.
    drained: u64,
    /// The last wait had room for no more.
    crowded: bool,
    /// The last wait has not asked the kernel.
    unasked: bool,
}

impl Ready {
    /// Of a set that nobody has waited for yet.
    pub const fn new() -> Ready {
        Ready {
            list: List::new(),
            order: ReportOrder::new(),
            count: 0,
            stale: 0,
            passed: 0,
            more: false,
            drained: 0,
            crowded: false,
            unasked: false,
        }
    }

    /// A wait begins, with room for so many events: reports what comes before anything that the kernel may have, if that
    /// could fill the room. If no room is left the kernel is not to be asked this time.
    pub fn begin(&mut self, set: &mut impl Set, room: usize) -> Wait {
        let mut wait = Wait { before: self.count, reported: 0 };
        if (self.more || self.crowded || self.list.len() as usize >= room) && !self.unasked {
            // Of what the kernel has not named again, since it has no more to say of it, we do not hear: nobody waits for it
            // longer than for one round of all.
            let overdue = Rank::reported(self.count.saturating_sub(self.list.len() as u64 + self.order.len() as u64));
            let left = if self.more { Rank::reported(self.drained + 1) } else { Rank::news(0) };
            let limit = self.order.oldest().unwrap_or(left).min(left).max(overdue);
            // What came before the doorbells were armed comes before what the kernel tells for the first time.
            let armed = if self.order.len() == 0 && !self.more { self.list.armed() } else { 0 };
            while let Some((number, rank, _)) = self.first(set, &wait)
                && (rank < limit || rank.arrived().is_some_and(|ticks| ticks < armed))
                && wait.reported < room
            {
                match self.poll(set, number, &wait) {
                    Looked::Nothing => {}
                    Looked::Reported { .. } => wait.reported += 1,
                    Looked::Unreported => break,
                }
            }
        }
        self.unasked = wait.reported == room;
        if self.unasked {
            self.list.age(set, wait.before);
        }
        wait
    }

    /// A wait that has asked the kernel first, since there was nothing listed.
    pub fn asked_first(&mut self) -> Wait {
        self.unasked = false;
        Wait { before: self.count, reported: 0 }
    }

    /// Reports what the kernel has answered, if it was asked, and what the rings have, with room for so many events. Returns
    /// how many of the rings it were, and of the kernel.
    pub fn merge(&mut self, set: &mut impl Set, wait: &Wait, asked: Option<Asked>, room: usize) -> (usize, usize) {
        let had_more = self.more;
        if let Some(asked) = &asked {
            if !self.more {
                self.order.begin();
            }
            self.more = asked.more;
        }
        let Asked { entries, natives, .. } = asked.unwrap_or_default();
        let newest = if had_more { Rank::reported(self.drained) } else { Rank::news(0) };
        let mut merge = Merge::new(entries, natives, &self.list, self.stale, newest);
        let (mut rings, mut handed, mut room, mut can_tell) = (0, 0, room, true);
        loop {
            let first = self.first(set, wait).filter(|_| can_tell).map(|(_, rank, group)| (rank, group));
            let (order, list) = (&self.order, &self.list);
            let set = core::cell::RefCell::new(&mut *set);
            let turn = merge.turn(
                first,
                room,
                |at| {
                    let mut set = set.borrow_mut();
                    match set.entry(at) {
                        Entry::Native { data, .. } => Listed::Native(order.rank(data)),
                        Entry::Bell(group) => Listed::Bell(group),
                        Entry::Ours { number, is_first } if can_tell => match list.news(*set, number) {
                            Some(rank) => Listed::Ours(number, (!is_first).then_some(rank)),
                            None => Listed::Nothing,
                        },
                        Entry::Ours { .. } | Entry::Nothing => Listed::Nothing,
                    }
                },
                |at, news| set.borrow_mut().arrived(at, news),
            );
            let set = set.into_inner();
            let looked = match turn {
                None => break,
                Some(Turn::First) => self.first(set, wait).map(|(number, ..)| self.poll(set, number, wait)),
                Some(Turn::Ours(number)) => Some(self.poll(set, number, wait)),
                Some(Turn::Native(at)) => {
                    match self.hand_over(set, at, wait) {
                        Handed::Over => {
                            handed += 1;
                            room -= 1;
                        }
                        Handed::Again => {}
                        Handed::Back => can_tell = false,
                    }
                    None
                }
            };
            match looked {
                Some(Looked::Reported { .. }) => {
                    rings += 1;
                    room -= 1;
                }
                Some(Looked::Unreported) => can_tell = false,
                Some(Looked::Nothing) | None => {}
            }
        }
        self.passed |= merge.passed();
        self.crowded = room == 0;
        if asked.is_some_and(|asked| !asked.more) {
            self.drained = self.count;
        }
        self.list.age(set, wait.before);
        (rings, handed)
    }

    /// The first of the list that has not been reported in this wait.
    fn first(&self, set: &mut impl Set, wait: &Wait) -> Option<(u32, Rank, u32)> {
        let first = self.list.first(set)?;
        (first.1.arrived().is_some() || first.1 <= Rank::reported(wait.before)).then_some(first)
    }

    fn poll(&mut self, set: &mut impl Set, number: u32, wait: &Wait) -> Looked {
        self.list.remove(set, number);
        let looked = set.poll(number);
        match looked {
            Looked::Nothing => {}
            Looked::Reported { again } => {
                self.count += 1;
                if again {
                    self.list.repeat(set, number, self.count);
                }
            }
            Looked::Unreported => self.list.put_back(set, number, Rank::reported(wait.before)),
        }
        looked
    }

    fn hand_over(&mut self, set: &mut impl Set, at: usize, wait: &Wait) -> Handed {
        let entry = set.entry(at);
        if let Entry::Native { data, is_level: true } = entry
            && self.order.rank(data).is_some_and(|rank| rank > Rank::reported(wait.before))
        {
            return Handed::Again;
        }
        if !set.hand_over(at) {
            return Handed::Back;
        }
        self.count += 1;
        if let Entry::Native { data, is_level: true } = entry {
            self.order.note(data, self.count);
        }
        Handed::Over
    }

    /// Whether nothing would change if the doorbells were called disarmed now.
    pub fn is_unarmed(&self) -> bool {
        self.list.armed() == 0 && self.stale == 0 && self.passed == 0
    }

    /// The doorbells have been armed at this time, after all entries of the kernel were merged; 0: they are not armed.
    pub fn arm(&mut self, ticks: u64) {
        let heard = self.list.arm(ticks);
        self.stale = (self.stale | heard) & !core::mem::take(&mut self.passed);
    }
}
