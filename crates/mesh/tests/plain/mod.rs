//! A data plane of plain tables that checks its writer: nothing may change that a program can be reading.

use sidestep_mesh::address::Endpoint;
use sidestep_mesh::plane::{DataPlane, Existing, Frontend, FrontendKey, Member, Sizes, Slot, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

pub struct Tables {
    pub sizes: Sizes,
    pub frontends: BTreeMap<FrontendKey, Frontend>,
    pub slots: BTreeMap<u32, Slot>,
    pub backends: BTreeMap<u32, Endpoint>,
    pub members: BTreeSet<Member>,
    pub sources: BTreeSet<Source>,
    /// Slots and backends that a program may have found since the last wait for readers.
    readable: (BTreeSet<u32>, BTreeSet<u32>),
    /// Index of the call that fails, counted from now; 0: none.
    pub fail_in: u32,
}

impl Tables {
    pub fn new(sizes: Sizes) -> Tables {
        Tables {
            sizes,
            frontends: BTreeMap::new(),
            slots: BTreeMap::new(),
            backends: BTreeMap::new(),
            members: BTreeSet::new(),
            sources: BTreeSet::new(),
            readable: Default::default(),
            fail_in: 0,
        }
    }

    /// The backends that connections to this frontend reach. None: there is no such frontend.
    pub fn reach(&self, key: &FrontendKey) -> Option<BTreeSet<Endpoint>> {
        let frontend = self.frontends.get(key)?;
        let slots = (frontend.first..frontend.first + frontend.count).map(|place| self.slots[&place]);
        Some(slots.flat_map(|slot| [self.backends[&slot.backend], self.backends[&slot.other]]).collect())
    }

    fn call(&mut self) -> io::Result<()> {
        self.fail_in = self.fail_in.saturating_sub(1);
        if self.fail_in == 1 { Err(io::Error::from(io::ErrorKind::OutOfMemory)) } else { Ok(()) }
    }

    /// Checks that every frontend leads to existing slots and backends, and marks all of them as readable.
    fn publish(&mut self) {
        for frontend in self.frontends.values() {
            for place in frontend.first..frontend.first + frontend.count {
                let slot = self.slots.get(&place).expect("a frontend leads to a slot that was never written");
                for backend in [slot.backend, slot.other] {
                    assert!(backend != 0 && self.backends.contains_key(&backend), "no backend {backend}");
                    self.readable.1.insert(backend);
                }
                self.readable.0.insert(place);
            }
        }
    }
}

impl DataPlane for Tables {
    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn existing(&mut self) -> io::Result<Existing> {
        let in_use: BTreeSet<u32> = self.frontends.values().flat_map(|f| f.first..f.first + f.count).collect();
        let in_lists = in_use.iter().flat_map(|p| [self.slots[p].backend, self.slots[p].other]);
        let named: BTreeSet<u32> = in_lists.chain(self.members.iter().map(|member| member.backend)).collect();
        Ok(Existing {
            frontends: self.frontends.iter().map(|(key, frontend)| (*key, *frontend)).collect(),
            backends: named.into_iter().filter_map(|number| Some((number, *self.backends.get(&number)?))).collect(),
            members: self.members.iter().copied().collect(),
            sources: self.sources.iter().copied().collect(),
        })
    }

    fn clear_service(&mut self, service: u32) -> io::Result<()> {
        assert!(0 < service && service < self.sizes.services);
        self.call()
    }

    fn put_backend(&mut self, number: u32, endpoint: Endpoint) -> io::Result<()> {
        assert!(0 < number && number < self.sizes.backends);
        let same = self.backends.get(&number) == Some(&endpoint);
        assert!(same || !self.readable.1.contains(&number), "backend {number} is in use");
        self.call()?;
        self.backends.insert(number, endpoint);
        Ok(())
    }

    fn put_slots(&mut self, first: u32, slots: &[Slot]) -> io::Result<()> {
        for (place, slot) in (first..).zip(slots) {
            assert!(place < self.sizes.slots);
            let same = self.slots.get(&place) == Some(slot);
            assert!(same || !self.readable.0.contains(&place), "slot {place} is in use");
        }
        self.call()?;
        self.slots.extend((first..).zip(slots.iter().copied()));
        Ok(())
    }

    fn put_members(&mut self, members: &[Member]) -> io::Result<()> {
        self.call()?;
        self.members.extend(members);
        assert!(self.members.len() <= self.sizes.members as usize, "{} members", self.members.len());
        Ok(())
    }

    fn put_sources(&mut self, sources: &[Source]) -> io::Result<()> {
        self.call()?;
        self.sources.extend(sources);
        assert!(self.sources.len() <= self.sizes.sources as usize, "{} sources", self.sources.len());
        Ok(())
    }

    fn remove_sources(&mut self, sources: &[Source]) -> io::Result<()> {
        self.call()?;
        self.sources.retain(|source| !sources.contains(source));
        Ok(())
    }

    /// Fails in the middle of a batch.
    fn put_frontends(&mut self, frontends: &[(FrontendKey, Frontend)]) -> io::Result<()> {
        let outcome = self.call();
        let all: BTreeSet<_> = self.frontends.keys().chain(frontends.iter().map(|(key, _)| key)).collect();
        assert!(all.len() <= self.sizes.frontends as usize, "{} frontends", all.len());
        let done = if outcome.is_ok() { frontends.len() } else { frontends.len() / 2 };
        for (key, frontend) in &frontends[..done] {
            self.frontends.insert(*key, *frontend);
            self.publish();
        }
        outcome
    }

    fn remove_frontends(&mut self, keys: &[FrontendKey]) -> io::Result<()> {
        self.call()?;
        self.frontends.retain(|key, _| !keys.contains(key));
        Ok(())
    }

    fn remove_members(&mut self, members: &[Member]) -> io::Result<()> {
        self.call()?;
        self.members.retain(|member| !members.contains(member));
        Ok(())
    }

    fn wait_for_readers(&mut self) -> io::Result<()> {
        self.call()?;
        self.readable = Default::default();
        self.publish();
        Ok(())
    }
}
