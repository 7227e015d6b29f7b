//! Everything that the sources have told: Services, EndpointSlices, and which slices are whose.

use crate::object::{Key, Name, Object, Service, Slice};
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Default)]
pub struct State {
    services: HashMap<Name, Service>,
    slices: HashMap<Name, Slice>,
    /// Service -> its slices. A slice may come before its Service.
    slices_of: HashMap<Name, BTreeSet<Name>>,
}

/// What a source tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Put(Object),
    Delete(Key),
    /// Everything there is: what is not in it has gone.
    All(Vec<Object>),
}

impl State {
    /// Takes the change in. Returns the Services that it may concern.
    pub fn apply(&mut self, change: Change) -> BTreeSet<Name> {
        match change {
            Change::Put(object) => self.put(object),
            Change::Delete(key) => self.delete(&key),
            Change::All(objects) => self.replace(objects),
        }
    }

    fn replace(&mut self, objects: Vec<Object>) -> BTreeSet<Name> {
        let told: BTreeSet<Key> = objects.iter().map(Object::key).collect();
        let gone: Vec<Key> = self.keys().filter(|key| !told.contains(key)).collect();
        let mut concerned: BTreeSet<Name> = gone.iter().flat_map(|key| self.delete(key)).collect();
        concerned.extend(objects.into_iter().flat_map(|object| self.put(object)));
        concerned
    }

    fn keys(&self) -> impl Iterator<Item = Key> {
        self.services.keys().cloned().map(Key::Service).chain(self.slices.keys().cloned().map(Key::Slice))
    }

    fn put(&mut self, object: Object) -> BTreeSet<Name> {
        match object {
            Object::Service(service) if self.services.get(&service.name) == Some(&service) => BTreeSet::new(),
            Object::Service(service) => {
                let name = service.name.clone();
                self.services.insert(name.clone(), service);
                BTreeSet::from([name])
            }
            Object::Slice(slice) if self.slices.get(&slice.name) == Some(&slice) => BTreeSet::new(),
            Object::Slice(slice) => {
                let mut concerned = self.delete(&Key::Slice(slice.name.clone()));
                let owner = owner(&slice);
                self.slices_of.entry(owner.clone()).or_default().insert(slice.name.clone());
                self.slices.insert(slice.name.clone(), slice);
                concerned.insert(owner);
                concerned
            }
        }
    }

    fn delete(&mut self, key: &Key) -> BTreeSet<Name> {
        match key {
            Key::Service(name) => self.services.remove(name).map(|service| service.name).into_iter().collect(),
            Key::Slice(name) => {
                let Some(slice) = self.slices.remove(name) else { return BTreeSet::new() };
                let owner = owner(&slice);
                if let Some(its) = self.slices_of.get_mut(&owner) {
                    its.remove(name);
                    if its.is_empty() {
                        self.slices_of.remove(&owner);
                    }
                }
                BTreeSet::from([owner])
            }
        }
    }

    pub fn service(&self, name: &Name) -> Option<&Service> {
        self.services.get(name)
    }

    /// In no particular order.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// Every Service that there is, or that a slice is for.
    pub fn names(&self) -> BTreeSet<Name> {
        self.services.keys().chain(self.slices_of.keys()).cloned().collect()
    }

    /// The slices of a Service, in the order of their names.
    pub fn slices(&self, service: &Name) -> Vec<&Slice> {
        self.slices_of.get(service).into_iter().flatten().filter_map(|name| self.slices.get(name)).collect()
    }
}

fn owner(slice: &Slice) -> Name {
    Name { namespace: slice.name.namespace.clone(), name: slice.service.clone() }
}
