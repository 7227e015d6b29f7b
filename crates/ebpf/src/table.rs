//! A typed BPF hash map.

use crate::error::{Cause, Doing, Result};
use crate::grace::Written;
use crate::layout::MapData;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;

/// A BPF hash map with keys and values of our types.
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

    /// All keys. Other processes may be writing.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.map.keys().filter_map(|key| K::from_bytes(&key))
    }

    /// Capacity in entries.
    pub fn room(&self) -> u32 {
        self.map.max_entries()
    }

    /// All entries. Other processes may be writing.
    pub fn entries(&self) -> Result<Vec<(K, V)>> {
        let keys: Vec<K> = self.keys().collect();
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.extend(self.get(&key)?.map(|value| (key, value)));
        }
        Ok(found)
    }

    /// Exchanges each entry, in the order given. Waits first for the readers of an entry that was written a moment ago.
    pub fn put_all(&self, entries: &[(K, V)]) -> Result<()> {
        let keys = || entries.iter().map(|(key, _)| key.bytes());
        let mut written = self.written.borrow_mut();
        written.space_out(keys());
        let put = self.add_all(entries);
        written.note(keys());
        put
    }

    /// As `put_all`, for keys that are not there yet, which no program can be reading.
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

    /// Replaces the kernel's error for a full table by a message that says so.
    fn refused(&self, error: libbpf_rs::Error) -> Cause {
        if says_full(&error) { Full { room: self.room() }.into() } else { error.into() }
    }

    /// Removes the entries that are not wanted.
    pub fn retain(&self, is_wanted: impl Fn(&K) -> bool) -> Result<()> {
        self.remove_all(&self.keys().filter(|key| !is_wanted(key)).collect::<Vec<_>>())
    }

    /// Removes these keys; missing ones are no error.
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

/// Error of an entry for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table is full, it has room for {room} entries")]
pub struct Full {
    /// Entries.
    pub room: u32,
}

/// Whether the call that has just failed found the table full: E2BIG for hash tables, ENOSPC for prefix tables. libbpf's error
/// has no kind for ENOSPC; libbpf leaves the number in errno.
fn says_full(error: &libbpf_rs::Error) -> bool {
    let number = io::Error::last_os_error().raw_os_error();
    error.kind() == ErrorKind::TooBig || (error.kind() == ErrorKind::Other && number == Some(libc::ENOSPC))
}

/// Entries for each call. The kernel holds no lock during a call, but copies all entries.
const BATCH: usize = 4096;
