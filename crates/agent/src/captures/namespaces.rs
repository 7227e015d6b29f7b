//! Which files name which namespace, and whose word counts: of several files the first by name.

use sidestep_ebpf::policy::Addresses;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// One network namespace that is captured, or is to be.
#[derive(Default)]
pub struct CapturedNamespace {
    /// The number by which changes in it are told.
    pub number: i32,
    /// Files that name it.
    claims: BTreeSet<Name>,
    /// The file that has named it, while nobody does: it is captured until it ends, or until that file goes.
    orphan_of: Option<Name>,
    /// By whose rules it is captured.
    pub applied: Option<Arc<Capture>>,
    /// Its addresses, as the last visit has found them.
    pub addresses: Addresses,
}

impl CapturedNamespace {
    /// Whose rules count.
    pub fn owner(&self) -> Option<&Name> {
        self.claims.first()
    }

    /// Whose policies count: a pod that has lost its name is judged on.
    pub fn policy_owner(&self) -> Option<&Name> {
        self.owner().or(self.orphan_of.as_ref())
    }

    /// The files that name it, of which only the first counts.
    pub fn claims(&self) -> impl Iterator<Item = &Name> {
        self.claims.iter()
    }
}

/// By cookie.
#[derive(Default)]
pub struct Namespaces {
    namespaces: HashMap<u64, CapturedNamespace>,
    by_number: HashMap<i32, u64>,
    /// Namespaces that a file names, or has named.
    of: HashMap<Name, BTreeSet<u64>>,
}

/// What has to be done about a namespace that lost a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Orphaned {
    /// Nobody wants it any more.
    Nobody(u64),
    /// Now these files' word counts, or a complaint about them is over.
    Others(u64, Vec<Name>),
}

impl Namespaces {
    pub fn get(&self, cookie: u64) -> Option<&CapturedNamespace> {
        self.namespaces.get(&cookie)
    }

    pub fn get_mut(&mut self, cookie: u64) -> Option<&mut CapturedNamespace> {
        self.namespaces.get_mut(&cookie)
    }

    pub fn by_number(&self, number: i32) -> Option<u64> {
        self.by_number.get(&number).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &CapturedNamespace)> {
        self.namespaces.iter().map(|(cookie, namespace)| (*cookie, namespace))
    }

    pub fn cookies(&self) -> BTreeSet<u64> {
        self.namespaces.keys().copied().collect()
    }

    /// The file names this namespace. Returns the other files that do so, if that is new: they are to hear of it.
    pub fn claim(&mut self, name: &Name, cookie: u64, number: i32) -> Vec<Name> {
        let namespace = self.namespaces.entry(cookie).or_default();
        namespace.number = number;
        namespace.orphan_of = None;
        self.by_number.insert(number, cookie);
        self.of.entry(name.clone()).or_default().insert(cookie);
        if namespace.claims.insert(name.clone()) {
            namespace.claims.iter().filter(|other| *other != name).cloned().collect()
        } else {
            Vec::new()
        }
    }

    /// The file names this namespace no longer. If no other file names it, it stays captured, as an orphan of this file.
    pub fn abandon(&mut self, name: &Name, cookie: u64) -> Option<Orphaned> {
        let namespace = self.namespaces.get_mut(&cookie)?;
        namespace.claims.remove(name);
        if namespace.claims.is_empty() {
            namespace.orphan_of = Some(name.clone());
            return None;
        }
        self.unlink(name, cookie);
        let namespace = self.namespaces.get(&cookie)?;
        Some(Orphaned::Others(cookie, namespace.claims.iter().cloned().collect()))
    }

    /// The file names nothing any more, and what it has named is its business no more.
    pub fn release(&mut self, name: &Name) -> Vec<Orphaned> {
        let cookies = self.of.remove(name).unwrap_or_default();
        cookies.into_iter().filter_map(|cookie| self.release_one(name, cookie)).collect()
    }

    fn release_one(&mut self, name: &Name, cookie: u64) -> Option<Orphaned> {
        let namespace = self.namespaces.get_mut(&cookie)?;
        namespace.claims.remove(name);
        if namespace.orphan_of.as_ref() == Some(name) {
            namespace.orphan_of = None;
        }
        if namespace.claims.is_empty() && namespace.orphan_of.is_none() {
            self.remove(cookie);
            return Some(Orphaned::Nobody(cookie));
        }
        Some(Orphaned::Others(cookie, namespace.claims.iter().cloned().collect()))
    }

    fn unlink(&mut self, name: &Name, cookie: u64) {
        if let Some(its) = self.of.get_mut(name) {
            its.remove(&cookie);
            if its.is_empty() {
                self.of.remove(name);
            }
        }
    }

    /// The namespace has ended. Returns the files that name it.
    pub fn remove(&mut self, cookie: u64) -> Vec<Name> {
        let Some(namespace) = self.namespaces.remove(&cookie) else { return Vec::new() };
        self.by_number.remove(&namespace.number);
        for name in namespace.claims.iter().chain(&namespace.orphan_of) {
            self.unlink(name, cookie);
        }
        namespace.claims.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new("default", text)
    }

    #[test]
    fn of_two_files_the_first_counts_whichever_came_first() {
        let mut namespaces = Namespaces::default();
        let (a, b) = (name("a"), name("b"));
        assert!(namespaces.claim(&b, 1, 10).is_empty());
        assert_eq!(namespaces.claim(&a, 1, 10), std::slice::from_ref(&b));
        assert!(namespaces.claim(&a, 1, 10).is_empty(), "no news");
        assert_eq!(namespaces.get(1).unwrap().owner(), Some(&a));
        assert_eq!(namespaces.release(&a), [Orphaned::Others(1, vec![b.clone()])]);
        assert_eq!(namespaces.get(1).unwrap().owner(), Some(&b));
        assert_eq!(namespaces.release(&b), [Orphaned::Nobody(1)]);
        assert!(namespaces.get(1).is_none() && namespaces.by_number(10).is_none() && namespaces.of.is_empty());
    }

    #[test]
    fn a_namespace_that_lost_its_name_stays_until_the_file_goes() {
        let mut namespaces = Namespaces::default();
        let (a, b) = (name("a"), name("b"));
        namespaces.claim(&a, 1, 10);
        assert_eq!(namespaces.abandon(&a, 1), None);
        namespaces.claim(&a, 2, 11);
        assert_eq!(namespaces.cookies(), BTreeSet::from([1, 2]));
        assert_eq!(namespaces.release(&a), [Orphaned::Nobody(1), Orphaned::Nobody(2)]);
        // Another file names it: then it is that one's.
        namespaces.claim(&a, 1, 10);
        namespaces.claim(&b, 1, 10);
        assert_eq!(namespaces.abandon(&a, 1), Some(Orphaned::Others(1, vec![b.clone()])));
        assert_eq!(namespaces.release(&a), []);
        assert_eq!(namespaces.release(&b), [Orphaned::Nobody(1)]);
        // It ends.
        namespaces.claim(&a, 1, 10);
        namespaces.abandon(&a, 1);
        assert_eq!(namespaces.remove(1), []);
        assert_eq!(namespaces.release(&a), []);
        namespaces.claim(&a, 1, 10);
        assert_eq!(namespaces.remove(1), std::slice::from_ref(&a));
        assert!(namespaces.of.is_empty() && namespaces.by_number.is_empty());
    }
}
