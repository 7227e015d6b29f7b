//! Which of the kernel's events have been reported, and when: what is still ready since then comes before what is new.

use crate::list::Rank;

/// Events that are remembered from one wait to the next. Of more, the order is the kernel's and the rings' own only.
const MOST: usize = 32;

/// Events as the program knows them, by their data.
#[derive(Clone, Copy, Debug)]
pub struct ReportOrder {
    /// Of the wait before, and of this one.
    tables: [Table; 2],
    now: usize,
}

#[derive(Clone, Copy, Debug)]
struct Table {
    len: usize,
    data: [u64; MOST],
    counts: [u64; MOST],
}

impl Table {
    const EMPTY: Table = Table { len: 0, data: [0; MOST], counts: [0; MOST] };

    fn at(&self, data: u64) -> Option<usize> {
        self.data[..self.len].iter().position(|d| *d == data)
    }

    fn find(&self, data: u64) -> Option<u64> {
        self.at(data).map(|at| self.counts[at])
    }

    fn remove(&mut self, data: u64) {
        if let Some(at) = self.at(data) {
            self.len -= 1;
            (self.data[at], self.counts[at]) = (self.data[self.len], self.counts[self.len]);
        }
    }

    fn note(&mut self, data: u64, count: u64) {
        let at = self.at(data).unwrap_or(self.len);
        if at < MOST {
            (self.data[at], self.counts[at]) = (data, count);
            self.len = self.len.max(at + 1);
        }
    }
}

impl Default for ReportOrder {
    fn default() -> ReportOrder {
        ReportOrder::new()
    }
}

impl ReportOrder {
    pub const fn new() -> ReportOrder {
        ReportOrder { tables: [Table::EMPTY; 2], now: 0 }
    }

    /// The kernel has been asked, and has told everything: what it has not named is not ready any more.
    pub fn begin(&mut self) {
        self.now ^= 1;
        self.tables[self.now].len = 0;
    }

    /// When this event was reported, if it was and has been ready since.
    pub fn rank(&self, data: u64) -> Option<Rank> {
        let [a, b] = [self.now, self.now ^ 1].map(|t| self.tables[t].find(data));
        a.max(b).map(Rank::reported)
    }

    /// It is being reported as the `count`-th event.
    pub fn note(&mut self, data: u64, count: u64) {
        self.tables[self.now ^ 1].remove(data);
        self.tables[self.now].note(data, count);
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.tables.iter().map(|t| t.len).sum()
    }

    /// When the one of them was reported that was reported first.
    pub fn oldest(&self) -> Option<Rank> {
        self.tables.iter().flat_map(|t| &t.counts[..t.len]).min().map(|count| Rank::reported(*count))
    }
}
