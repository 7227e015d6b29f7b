//! A hash map of the kernel, with types.

use crate::error::{Cause, Doing, Result};
use crate::grace::Written;
use crate::layout::MapData;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;

/// A hash table of the kernel, whose keys and values are types of ours.
pub struct Table<K, V> {
    map: MapHandle,
    name: &'static str,
    written: RefCell<Written>,
    types: PhantomData<(K, V)>,
}

impl<K: MapData, V: MapData> Table<K, V> {
    /// `name` is for messages. Panics if the map has entries of another size.
    pub fn new(map: MapHandle, name: &'static str) -> Table<K, V> {
        assert_eq!((map.key_size() as usize, map.value_size() as usize), (size_of::<K>(), size_of::<V>()), "{name}");
        Table { map, name, written: RefCell::default(), types: PhantomData }
    }

    /// The value of this key.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let found = self.map.lookup(key.bytes(), MapFlags::ANY).doing(format!("map {}: look up", self.name))?;
        Ok(found.as_deref().and_then(V::from_bytes))
    }

    /// All keys, as they are while others may be writing.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.map.keys().filter_map(|key| K::from_bytes(&key))
    }

    /// How many entries it has room for.
    pub fn room(&self) -> u32 {
        self.map.max_entries()
    }

    /// All entries, as they are while others may be writing.
    pub fn entries(&self) -> Result<Vec<(K, V)>> {
        let keys: Vec<K> = self.keys().collect();
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.extend(self.get(&key)?.map(|value| (key, value)));
        }
        Ok(found)
    }

    /// Each entry changes at once, in the order given. One that was written a moment ago waits for its readers.
    pub fn put_all(&self, entries: &[(K, V)]) -> Result<()> {
        let keys = || entries.iter().map(|(key, _)| key.bytes());
        let mut written = self.written.borrow_mut();
        written.space_out(keys());
        let put = self.add_all(entries);
        written.note(keys());
        put
    }

    /// As `put_all`, of keys that are not there yet, which nobody can be reading.
    pub fn add_all(&self, entries: &[(K, V)]) -> Result<()> {
        if let [(key, value)] = entries {
            let put = self.map.update(key.bytes(), value.bytes(), MapFlags::ANY);
            return put.map_err(|error| self.refused(error)).doing(format!("map {}: put", self.name));
        }
        for some in entries.chunks(BATCH) {
            let keys: Vec<u8> = some.iter().flat_map(|(key, _)| key.bytes()).copied().collect();
            let values: Vec<u8> = some.iter().flat_map(|(_, value)| value.bytes()).copied().collect();
            let put = self.map.update_batch(&keys, &values, some.len() as u32, MapFlags::ANY, MapFlags::ANY);
            let put = put.map_err(|error| self.refused(error));
            put.doing(format!("map {}: put {} entries", self.name, some.len()))?;
        }
        Ok(())
    }

    /// What the kernel says of a full table is not what people say.
    fn refused(&self, error: libbpf_rs::Error) -> Cause {
        if says_full(&error) { Full { room: self.room() }.into() } else { error.into() }
    }

    /// Removes what is not wanted.
    pub fn retain(&self, is_wanted: impl Fn(&K) -> bool) -> Result<()> {
        self.remove_all(&self.keys().filter(|key| !is_wanted(key)).collect::<Vec<_>>())
    }

    /// What is not there needs no removal.
    pub fn remove_all(&self, keys: &[K]) -> Result<()> {
        for key in keys {
            match self.map.delete(key.bytes()) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).doing(format!("map {}: remove", self.name));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Of an entry that finds no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table is full, it has room for {room} entries")]
pub struct Full {
    /// Entries.
    pub room: u32,
}

/// Of the call that has just failed: E2BIG of hash tables, ENOSPC of those for prefixes. The error has no kind for the second
/// one; libbpf leaves its number in errno.
fn says_full(error: &libbpf_rs::Error) -> bool {
    let number = io::Error::last_os_error().raw_os_error();
    error.kind() == ErrorKind::TooBig || (error.kind() == ErrorKind::Other && number == Some(libc::ENOSPC))
}

/// Entries a call. The kernel holds nothing during one, but copies all of it.
const BATCH: usize = 4096;
