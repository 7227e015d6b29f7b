//! The list of registrations that may have something to report, in the order in which they are to be looked at.

/// Doorbells that one set can have. Each stands in the kernel's list once.
pub const GROUPS: usize = 4;

/// Where an entry stands among others: a smaller rank is reported before a larger one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank(u64);

const NEWS: u64 = 1 << 63;

impl Rank {
    /// It has been reported as the `count`-th event of the set, and may still be ready.
    pub fn reported(count: u64) -> Rank {
        Rank((count + 1).min(NEWS - 1))
    }

    /// It has arrived at this time, in ticks, and has not been reported since.
    pub fn news(ticks: u64) -> Rank {
        Rank(NEWS | ticks)
    }

    /// The time of an arrival.
    pub fn arrived(self) -> Option<u64> {
        (self.0 & NEWS != 0).then_some(self.0 & !NEWS)
    }
}

/// A registration's part of the list. All zero: not in it.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Node {
    /// 0: not in the list.
    rank: u64,
    /// The neighbours, by number + 1; 0: none.
    next: u32,
    previous: u32,
    /// Which doorbell its news rings.
    pub group: u32,
}

impl Node {
    /// Where it stands in the list. None: it is not listed.
    pub fn rank(&self) -> Option<Rank> {
        (self.rank != 0).then_some(Rank(self.rank))
    }

    /// Whether it is in the list.
    pub fn is_listed(&self) -> bool {
        self.rank != 0
    }
}

/// Where nodes are kept: a small number for each registration.
pub trait Nodes {
    /// None: there is no node with this number any more.
    fn node(&mut self, number: u32) -> Option<&mut Node>;
}

/// Links in front of the first and behind the last entry are 0; all others a number + 1.
type Link = u32;

fn number(link: Link) -> Option<u32> {
    link.checked_sub(1)
}

/// See the head of this file. Its nodes lie elsewhere; every method is to be given the same.
#[derive(Clone, Copy, Default, Debug)]
pub struct List {
    first: Link,
    last: Link,
    len: u32,
    /// News that has not been put in order yet, linked by `next` alone, the last first.
    unsorted: Link,
    /// When the doorbells were armed last; 0: they are not.
    armed: u64,
    /// The first news since then of each group; 0: none.
    heard: [u64; GROUPS],
}

impl List {
    /// An empty list.
    pub const fn new() -> List {
        List { first: 0, last: 0, len: 0, unsorted: 0, armed: 0, heard: [0; GROUPS] }
    }

    /// How many entries are listed.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry to look at next, with its rank and group.
    pub fn first(&self, nodes: &mut impl Nodes) -> Option<(u32, Rank, u32)> {
        let first = number(self.first)?;
        let node = nodes.node(first)?;
        Some((first, node.rank()?, node.group))
    }

    /// The rank of `of`, if it is in the list and has not been reported since it arrived.
    pub fn news(&self, nodes: &mut impl Nodes, of: u32) -> Option<Rank> {
        nodes.node(of)?.rank().filter(|rank| rank.arrived().is_some())
    }

    /// News of `of` has arrived at this time. To be followed by [`List::settle`] once all news is in. True: nothing had been
    /// heard of its group since the doorbells were armed.
    pub fn hear(&mut self, nodes: &mut impl Nodes, of: u32, ticks: u64) -> bool {
        let unsorted = self.unsorted;
        let Some(node) = nodes.node(of) else { return false };
        let mut is_first = false;
        if self.armed != 0
            && ticks >= self.armed
            && let Some(heard) = self.heard.get_mut(node.group as usize)
            && (*heard == 0 || ticks < *heard)
        {
            is_first = *heard == 0;
            *heard = ticks;
        }
        if node.is_listed() {
            return is_first; // it keeps its place, as in the kernel's list
        }
        node.rank = Rank::news(ticks).0;
        node.next = unsorted;
        self.unsorted = of + 1;
        self.len += 1;
        is_first
    }

    /// Puts the news heard into the order of its arrival.
    pub fn settle(&mut self, nodes: &mut impl Nodes) {
        if self.unsorted == 0 {
            return;
        }
        let mut latest = sorted_latest_first(nodes, core::mem::take(&mut self.unsorted));
        // All but the latest arrivals are older.
        let mut before = self.last;
        while let Some(news) = number(latest) {
            let Some(node) = nodes.node(news) else { return };
            let rank = node.rank;
            latest = node.next;
            while let Some(node) = number(before).and_then(|b| nodes.node(b)).filter(|b| b.rank > rank) {
                before = node.previous;
            }
            self.insert(nodes, news, before);
        }
    }

    /// `of` has been reported as the `count`-th event, and is to be looked at again.
    pub fn repeat(&mut self, nodes: &mut impl Nodes, of: u32, count: u64) {
        let last = self.last;
        let Some(node) = nodes.node(of) else { return };
        if !node.is_listed() {
            node.rank = Rank::reported(count).0;
            self.len += 1;
            self.insert(nodes, of, last);
        }
    }

    /// `of`, which was first, could not be reported after all.
    pub fn put_back(&mut self, nodes: &mut impl Nodes, of: u32, rank: Rank) {
        let Some(node) = nodes.node(of).filter(|n| !n.is_listed()) else { return };
        node.rank = rank.0;
        self.len += 1;
        self.insert(nodes, of, 0);
    }

    fn insert(&mut self, nodes: &mut impl Nodes, of: u32, before: Link) {
        let after = match number(before).and_then(|b| nodes.node(b)) {
            Some(b) => core::mem::replace(&mut b.next, of + 1),
            None => core::mem::replace(&mut self.first, of + 1),
        };
        match number(after).and_then(|a| nodes.node(a)) {
            Some(a) => a.previous = of + 1,
            None => self.last = of + 1,
        }
        if let Some(node) = nodes.node(of) {
            (node.previous, node.next) = (before, after);
        }
    }

    /// Takes `of` out. News must have been settled.
    pub fn remove(&mut self, nodes: &mut impl Nodes, of: u32) {
        let Some(node) = nodes.node(of).filter(|n| n.is_listed()) else { return };
        let Node { next, previous, .. } = *node;
        (node.rank, node.next, node.previous) = (0, 0, 0);
        match number(previous).and_then(|p| nodes.node(p)) {
            Some(p) => p.next = next,
            None => self.first = next,
        }
        match number(next).and_then(|n| nodes.node(n)) {
            Some(n) => n.previous = previous,
            None => self.last = previous,
        }
        self.len -= 1;
    }

    /// What could not be reported for want of room comes before what has been reported meanwhile, from `count` on.
    pub fn age(&mut self, nodes: &mut impl Nodes, count: u64) {
        let count = Rank::reported(count).0;
        let mut at = self.last;
        while let Some(node) = number(at).and_then(|n| nodes.node(n)).filter(|n| n.rank >= count) {
            if node.rank & NEWS != 0 {
                node.rank = count;
            }
            at = node.previous;
        }
    }

    /// The doorbells have been armed at this time; 0: they are not any more. Returns which groups have been heard of
    /// before, a bit each.
    pub fn arm(&mut self, ticks: u64) -> u32 {
        let heard = core::mem::take(&mut self.heard);
        self.armed = ticks;
        heard.iter().enumerate().filter(|(_, h)| **h != 0).fold(0, |groups, (group, _)| groups | 1 << group)
    }

    /// When the doorbells were armed; 0: they are not.
    pub fn armed(&self) -> u64 {
        self.armed
    }

    /// The first news of a group since its doorbell was armed.
    pub fn heard(&self, group: u32) -> Option<u64> {
        self.heard.get(group as usize).copied().filter(|h| *h != 0)
    }
}

/// What is linked by `next` from `first` on, sorted: the largest rank first.
fn sorted_latest_first(nodes: &mut impl Nodes, first: Link) -> Link {
    if number(first).and_then(|n| nodes.node(n)).is_none_or(|only| only.next == 0) {
        return first;
    }
    let (mut rest, mut reversed) = (sort(nodes, first), 0);
    while let Some(node) = number(rest).and_then(|n| nodes.node(n)) {
        (rest, node.next, reversed) = (node.next, reversed, rest);
    }
    reversed
}

/// Sorts what is linked by `next` from `first` on: the smallest rank first, those of the same rank as they were heard.
fn sort(nodes: &mut impl Nodes, first: Link) -> Link {
    // Runs of 1, 2, 4 ... entries that are sorted already, as the digits of a binary counter.
    let mut runs = [0 as Link; 32];
    let mut rest = first;
    while let Some(of) = number(rest) {
        let Some(node) = nodes.node(of) else { break };
        let mut run = rest;
        rest = core::mem::take(&mut node.next);
        for digit in &mut runs {
            if *digit == 0 {
                *digit = run;
                break;
            }
            // The list is backwards: what is taken from it later was heard earlier.
            run = merged(nodes, run, core::mem::take(digit));
        }
    }
    runs.into_iter().fold(0, |sorted, run| {
        if run == 0 {
            sorted
        } else if sorted == 0 {
            run
        } else {
            merged(nodes, sorted, run)
        }
    })
}

/// Two sorted runs made one; of the same rank, those of `a` come first.
fn merged(nodes: &mut impl Nodes, mut a: Link, mut b: Link) -> Link {
    let (mut first, mut last) = (0, None);
    while a != 0 || b != 0 {
        let from_a = b == 0 || a != 0 && rank(nodes, a) <= rank(nodes, b);
        let source = if from_a { &mut a } else { &mut b };
        let taken = *source;
        *source = number(taken).and_then(|n| nodes.node(n)).map_or(0, |n| n.next);
        match last.and_then(|l| nodes.node(l)) {
            Some(l) => l.next = taken,
            None => first = taken,
        }
        last = number(taken);
    }
    first
}

fn rank(nodes: &mut impl Nodes, link: Link) -> u64 {
    number(link).and_then(|n| nodes.node(n)).map_or(0, |n| n.rank)
}
