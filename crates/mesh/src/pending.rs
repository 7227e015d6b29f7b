//! Writes that the data plane has yet to make, in the order in which they become visible.

use crate::address::Endpoint;
use crate::plane::{DataPlane, Frontend, FrontendKey, Member, Slot, Source};
use crate::retired::Garbage;
use std::collections::BTreeMap;
use std::io;

/// If the data plane refuses a part, everything is written again later, which does no harm.
#[derive(Debug, Default)]
pub struct Pending {
    /// Numbers that were just assigned, whose counters must start at 0.
    pub services: Vec<u32>,
    /// Backends with new numbers.
    pub backends: Vec<(u32, Endpoint)>,
    /// New lists: index of the first slot, and the slots.
    pub slots: Vec<(u32, Vec<Slot>)>,
    /// Whether it is to be a member.
    pub members: BTreeMap<Member, bool>,
    /// Whether packets from there may use the Service.
    pub sources: BTreeMap<Source, bool>,
    /// None: to be removed.
    pub frontends: BTreeMap<FrontendKey, Option<Frontend>>,
    /// In use until everything here has been written.
    pub replaced: Garbage,
}

impl Pending {
    /// Writes everything. Returns what was replaced, which the caller must not reuse before a grace period.
    pub fn write(&mut self, plane: &mut dyn DataPlane) -> io::Result<Garbage> {
        self.services.iter().try_for_each(|service| plane.clear_service(*service))?;
        self.backends.iter().try_for_each(|(number, endpoint)| plane.put_backend(*number, *endpoint))?;
        self.slots.iter().try_for_each(|(first, slots)| plane.put_slots(*first, slots))?;
        plane.put_members(&of(&self.members, true))?;
        // Removals first: for a moment too few sources are better than too many.
        plane.remove_sources(&of(&self.sources, false))?;
        plane.put_sources(&of(&self.sources, true))?;
        let frontends: Vec<_> = self.frontends.iter().filter_map(|(key, value)| Some((*key, (*value)?))).collect();
        let gone: Vec<_> = self.frontends.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| *key).collect();
        // Removals first: in a full table they make room for additions.
        plane.remove_frontends(&gone)?;
        plane.put_frontends(&frontends)?;
        plane.remove_members(&of(&self.members, false))?;
        Ok(std::mem::take(self).replaced)
    }
}

fn of<T: Copy>(all: &BTreeMap<T, bool>, wanted: bool) -> Vec<T> {
    all.iter().filter(|(_, is)| **is == wanted).map(|(one, _)| *one).collect()
}
