//! Entries of sets and ranges, under numbers by which pods refer to them. Pods with the same rules, or the same routes, share
//! a number.

use super::layout::{range_key, range_key_of, route, route_of, set_key, set_key_of};
use crate::error::Result;
use crate::grace::wait_for_readers;
use crate::layout::MapData;
use crate::table::Table;
use crate::table_room::TableRoom;
use sidestep_mesh::capture::tables::Entries;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// The rules of one pod, and its routes, may take the room of a table divided by this.
const PARTS: u32 = 64;

pub struct Numbers {
    sets: Table<set_key, u8>,
    ranges: Table<range_key, route>,
    /// The numbers of written entries.
    numbers: HashMap<Rc<Entries>, u32>,
    uses: BTreeMap<u32, (Written, usize)>,
    /// No longer used; erased when no program can be reading them any more.
    retired: Vec<(u32, Written)>,
    /// The next number; None: `begin` has not been called.
    next: Option<u32>,
    /// Of sets and of ranges.
    rooms: [TableRoom; 2],
}

#[derive(Clone)]
struct Written {
    entries: Rc<Entries>,
    /// The trust domain of the pod that was the first to have them: they count there, whoever shares them.
    domain: Arc<str>,
}

impl Numbers {
    pub fn new(sets: Table<set_key, u8>, ranges: Table<range_key, route>) -> Numbers {
        let (numbers, uses, retired) = (HashMap::new(), BTreeMap::new(), Vec::new());
        let rooms = [TableRoom::new("sets", sets.room(), PARTS), TableRoom::new("ranges", ranges.room(), PARTS)];
        Numbers { sets, ranges, numbers, uses, retired, next: None, rooms }
    }

    /// `taken`: numbers to which pods refer. New numbers begin above all that an earlier process has written.
    pub fn begin(&mut self, taken: impl Iterator<Item = u32>) {
        let owners = self.sets.keys().map(|key| key.owner).chain(self.ranges.keys().map(|key| key.owner));
        self.next = Some(owners.chain(taken).max().unwrap_or(0).wrapping_add(1).max(1));
    }

    pub fn has_begun(&self) -> bool {
        self.next.is_some()
    }

    /// The number of these entries, which are written if they are new, and if the trust domain may have so many.
    pub fn claim(&mut self, entries: Entries, domain: &str) -> Result<u32> {
        if let Some(number) = self.numbers.get(&entries) {
            self.uses.get_mut(number).expect("every number in `numbers` has a use count").1 += 1;
            return Ok(*number);
        }
        let counts = counts(&entries);
        self.rooms.iter().zip(counts).try_for_each(|(room, count)| room.check(domain, count))?;
        let number = self.next.expect("`begin` precedes `claim`");
        self.next = Some(number.wrapping_add(1).max(1));
        let (sets, ranges) = encode(number, &entries);
        let written = self.sets.add_all(&sets).and_then(|()| self.ranges.add_all(&ranges));
        if let Err(error) = written {
            self.erase(number, &entries)?;
            return Err(error);
        }
        let written = Written { entries: Rc::new(entries), domain: domain.into() };
        self.rooms.iter_mut().zip(counts).for_each(|(room, count)| room.take(&written.domain, count));
        self.numbers.insert(Rc::clone(&written.entries), number);
        self.uses.insert(number, (written, 1));
        Ok(number)
    }

    pub fn release<const N: usize>(&mut self, numbers: [u32; N]) {
        for number in numbers {
            let Some((written, uses)) = self.uses.get_mut(&number) else { continue };
            *uses -= 1;
            if *uses == 0 {
                let written = written.clone();
                self.uses.remove(&number);
                self.numbers.remove(&written.entries);
                self.retired.push((number, written));
            }
        }
    }

    /// Erases entries that no pod uses any more, after one wait for readers.
    pub fn collect_garbage(&mut self) -> Result<()> {
        if self.retired.is_empty() {
            return Ok(());
        }
        wait_for_readers();
        while let Some((number, written)) = self.retired.pop() {
            if let Err(error) = self.erase(number, &written.entries) {
                self.retired.push((number, written));
                return Err(error);
            }
            let gone = counts(&written.entries);
            self.rooms.iter_mut().zip(gone).for_each(|(room, count)| room.give(&written.domain, count));
        }
        Ok(())
    }

    pub fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Erases all entries whose number is used neither here nor in `others`.
    pub fn sweep(&mut self, others: impl Iterator<Item = u32>) -> Result<()> {
        let used: BTreeSet<u32> = others.chain(self.uses.keys().copied()).collect();
        self.collect_garbage()?;
        let sets: Vec<set_key> = self.sets.keys().filter(|key| !used.contains(&key.owner)).collect();
        let ranges: Vec<range_key> = self.ranges.keys().filter(|key| !used.contains(&key.owner)).collect();
        if sets.is_empty() && ranges.is_empty() {
            return Ok(());
        }
        wait_for_readers();
        self.sets.remove_all(&sets)?;
        self.ranges.remove_all(&ranges)
    }

    fn erase(&self, number: u32, entries: &Entries) -> Result<()> {
        let (sets, ranges) = encode(number, entries);
        self.sets.remove_all(&sets.iter().map(|(key, _)| *key).collect::<Vec<_>>())?;
        self.ranges.remove_all(&ranges.iter().map(|(key, _)| *key).collect::<Vec<_>>())
    }

    /// Name, written entries and capacity of both tables.
    pub fn fill(&self) -> [(&'static str, usize, u32); 2] {
        self.rooms.each_ref().map(TableRoom::fill)
    }

    /// Numbers whose entries in the tables differ from what was written.
    pub fn damaged(&self) -> Result<BTreeSet<u32>> {
        let mut sets: HashSet<Vec<u8>> = self.sets.keys().map(|key| key.bytes().to_vec()).collect();
        let mut ranges: HashSet<Vec<u8>> = self.ranges.keys().map(|key| key.bytes().to_vec()).collect();
        let mut damaged = BTreeSet::new();
        for (number, (written, _)) in &self.uses {
            let (its_sets, its_ranges) = encode(*number, &written.entries);
            // No short-circuit: every entry found is removed from `sets`, whatever became of the others.
            let lost = its_sets.iter().filter(|(key, _)| !sets.remove(key.bytes())).count();
            let mut wrong = lost;
            for (key, value) in &its_ranges {
                let found = self.ranges.get(key)?;
                let is_there = ranges.remove(key.bytes()) && found.is_some_and(|found| found.bytes() == value.bytes());
                wrong += usize::from(!is_there);
            }
            if wrong > 0 {
                damaged.insert(*number);
            }
        }
        let owner_of_set = sets.iter().filter_map(|key| set_key::from_bytes(key)).map(|key| key.owner);
        let owner_of_range = ranges.iter().filter_map(|key| range_key::from_bytes(key)).map(|key| key.owner);
        damaged.extend(owner_of_set.chain(owner_of_range).filter(|owner| self.uses.contains_key(owner)));
        Ok(damaged)
    }
}

/// How many entries of sets and of ranges.
fn counts(entries: &Entries) -> [usize; 2] {
    [entries.sets.len(), entries.ranges.len()]
}

type Encoded = (Vec<(set_key, u8)>, Vec<(range_key, route)>);

fn encode(number: u32, entries: &Entries) -> Encoded {
    let sets = entries.sets.iter().map(|(kind, value)| (set_key_of(number, *kind, *value), 1)).collect();
    let ranges = entries
        .ranges
        .iter()
        .map(|((kind, range), route)| (range_key_of(number, *kind, *range), route_of(route.as_ref())));
    (sets, ranges.collect())
}
