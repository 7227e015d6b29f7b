//! Differences between the tables and what was written.

use super::layout::{identity_key_of, identity_of};
use super::{Policies, ranges_of, rules_of};
use crate::capture::inbound;
use crate::error::Result;
use crate::layout::MapData;
use std::collections::BTreeSet;

impl Policies {
    /// Namespace (0: of no single one) and difference. `strangers`: pods that this process has not put are differences, too.
    pub fn differences(&self, strangers: bool) -> Result<Vec<(u64, &'static str)>> {
        let damaged = self.damaged()?;
        let mut differences = Vec::new();
        for (cookie, isolated) in &self.known {
            let mut say = |what| differences.push((*cookie, what));
            match self.pods.get(cookie)? {
                None => say("is not among the pods of the tables"),
                Some(found) if found.bytes() != isolated.bytes() => {
                    say("the tables of policy say something else than was written");
                }
                Some(_) => {}
            }
            if damaged.contains(&isolated.policy) {
                say("its policies are not in the tables as they were written");
            }
            if !inbound::is_alive(&self.pins, *cookie) {
                say("no program is attached in its namespace, so that nothing that comes in is evaluated");
            }
        }
        let addresses = self.own.damaged()?.into_iter();
        differences.extend(addresses.map(|cookie| (cookie, "an address of its own is not in the tables")));
        for (at, known) in self.addresses.iter().filter_map(|(at, known)| Some((at, known.as_ref()?))) {
            let (key, wanted) = (identity_key_of(self.generation, *at), identity_of(*known));
            if self.identities.get(&key)?.is_none_or(|found| found.bytes() != wanted.bytes()) {
                differences.push((0, "an address has another identity in the tables than was written"));
                break;
            }
        }
        if strangers {
            let others = self.pods.keys().filter(|cookie| !self.known.contains_key(cookie));
            differences.extend(others.map(|cookie| (cookie, "is evaluated by the tables, and by no policy")));
        }
        Ok(differences)
    }

    /// Policies whose entries are missing or different.
    fn damaged(&self) -> Result<BTreeSet<u32>> {
        let mut damaged = BTreeSet::new();
        for (number, (written, _)) in &self.uses {
            for (key, said) in rules_of(*number, &written.entries.rules) {
                if self.rules.get(&key)? != Some(said) {
                    damaged.insert(*number);
                }
            }
            for (key, said) in ranges_of(*number, &written.entries.ranges) {
                if self.ranges.get(&key)? != Some(said) {
                    damaged.insert(*number);
                }
            }
        }
        Ok(damaged)
    }
}
