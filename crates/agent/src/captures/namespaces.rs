//! Which documents name which namespace. If several documents name one, the first by name counts.

use sidestep_ebpf::policy::Addresses;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A network namespace that is captured, or is to be.
#[derive(Default)]
pub struct CapturedNamespace {
    /// The number by which rtnetlink reports its changes, which ends with the namespace. None: it has none.
    number: Option<i32>,
    /// The documents that name it.
    claims: BTreeSet<Name>,
    /// The document that named it last, if none does now: it stays captured until it ends, or until that document is removed.
    orphan_of: Option<Name>,
    /// The document by whose rules it is captured.
    pub applied: Option<Arc<Capture>>,
    /// Its addresses, as of the last visit.
    pub addresses: Addresses,
}

impl CapturedNamespace {
    /// The document that counts.
    pub fn owner(&self) -> Option<&Name> {
        self.claims.first()
    }

    /// The pod whose policies count. A namespace that has lost its name keeps its policies.
    pub fn policy_owner(&self) -> Option<&Name> {
        self.owner().or(self.orphan_of.as_ref())
    }

    /// All documents that name it; the first one counts.
    pub fn claims(&self) -> impl Iterator<Item = &Name> {
        self.claims.iter()
    }
}

/// All namespaces, by cookie.
#[derive(Default)]
pub struct Namespaces {
    namespaces: HashMap<u64, CapturedNamespace>,
    by_number: HashMap<i32, u64>,
    /// The namespaces that each document names, or has named.
    of: HashMap<Name, BTreeSet<u64>>,
}

/// What a claim means for others.
#[derive(Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The other documents that name the namespace, if the claim is new: they must be visited.
    pub others: Vec<Name>,
    /// The namespace that had the number before. It has ended: the kernel gives no other one its number before that.
    pub displaced: Option<u64>,
}

/// What must be done about a namespace that has lost a document.
#[derive(Debug, PartialEq, Eq)]
pub enum Orphaned {
    /// No document wants it any more.
    Nobody(u64),
    /// These documents now count, or are no longer in conflict.
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

    /// The document names this namespace.
    pub fn claim(&mut self, name: &Name, cookie: u64, number: Option<i32>) -> Claimed {
        let namespace = self.namespaces.entry(cookie).or_default();
        namespace.number = number.or(namespace.number);
        namespace.orphan_of = None;
        let before = number.and_then(|number| self.by_number.insert(number, cookie));
        self.of.entry(name.clone()).or_default().insert(cookie);
        let others = if namespace.claims.insert(name.clone()) {
            namespace.claims.iter().filter(|other| *other != name).cloned().collect()
        } else {
            Vec::new()
        };
        Claimed { others, displaced: before.filter(|before| *before != cookie) }
    }

    /// The document no longer names this namespace. If no other one does, it stays captured, as an orphan of this document.
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

    /// The document is no longer responsible for any namespace that it has named.
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

    /// The namespace has ended. Returns the documents that name it.
    pub fn remove(&mut self, cookie: u64) -> Vec<Name> {
        let Some(namespace) = self.namespaces.remove(&cookie) else { return Vec::new() };
        // A newer namespace may have got the number.
        if let Some(number) = namespace.number.filter(|number| self.by_number(*number) == Some(cookie)) {
            self.by_number.remove(&number);
        }
        for name in namespace.claims.iter().chain(&namespace.orphan_of) {
            self.unlink(name, cookie);
        }
        namespace.claims.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Option<i32> = Some(10);

    fn name(text: &str) -> Name {
        Name::new("default", text)
    }

    #[test]
    fn of_two_files_the_first_counts_whichever_came_first() {
        let mut namespaces = Namespaces::default();
        let (a, b) = (name("a"), name("b"));
        assert!(namespaces.claim(&b, 1, TEN).others.is_empty());
        assert_eq!(namespaces.claim(&a, 1, TEN).others, std::slice::from_ref(&b));
        assert!(namespaces.claim(&a, 1, TEN).others.is_empty(), "no news");
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
        namespaces.claim(&a, 1, TEN);
        assert_eq!(namespaces.abandon(&a, 1), None);
        namespaces.claim(&a, 2, Some(11));
        assert_eq!(namespaces.cookies(), BTreeSet::from([1, 2]));
        assert_eq!(namespaces.release(&a), [Orphaned::Nobody(1), Orphaned::Nobody(2)]);
        // When another document names an orphan, it belongs to that one.
        namespaces.claim(&a, 1, TEN);
        namespaces.claim(&b, 1, TEN);
        assert_eq!(namespaces.abandon(&a, 1), Some(Orphaned::Others(1, vec![b.clone()])));
        assert_eq!(namespaces.release(&a), []);
        assert_eq!(namespaces.release(&b), [Orphaned::Nobody(1)]);
        // The namespace ends.
        namespaces.claim(&a, 1, TEN);
        namespaces.abandon(&a, 1);
        assert_eq!(namespaces.remove(1), []);
        assert_eq!(namespaces.release(&a), []);
        namespaces.claim(&a, 1, TEN);
        assert_eq!(namespaces.remove(1), std::slice::from_ref(&a));
        assert!(namespaces.of.is_empty() && namespaces.by_number.is_empty());
    }

    #[test]
    fn a_number_that_another_namespace_has_got_stays_with_that_one() {
        let mut namespaces = Namespaces::default();
        assert_eq!(namespaces.claim(&name("a"), 1, TEN).displaced, None);
        assert_eq!(namespaces.claim(&name("a"), 1, TEN).displaced, None, "it has the number itself");
        assert_eq!(namespaces.claim(&name("b"), 2, TEN).displaced, Some(1));
        namespaces.remove(1);
        assert_eq!(namespaces.by_number(10), Some(2));
        assert_eq!(namespaces.claim(&name("b"), 2, TEN).displaced, None, "that was said once");
        namespaces.remove(2);
        assert!(namespaces.by_number.is_empty());
    }

    #[test]
    fn namespaces_without_a_number_do_not_displace_each_other() {
        let mut namespaces = Namespaces::default();
        for (cookie, text) in [(1, "a"), (2, "b")] {
            assert_eq!(namespaces.claim(&name(text), cookie, None).displaced, None);
        }
        assert_eq!(namespaces.cookies(), BTreeSet::from([1, 2]));
        // A number that is known once stays known.
        namespaces.claim(&name("a"), 1, TEN);
        namespaces.claim(&name("a"), 1, None);
        namespaces.remove(1);
        assert!(namespaces.by_number.is_empty());
    }
}
