//! A hash map of the kernel, with types.

use crate::error::{Doing, Result};
use crate::layout::MapData;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use std::marker::PhantomData;

pub struct Table<K, V> {
    map: MapHandle,
    name: &'static str,
    types: PhantomData<(K, V)>,
}

impl<K: MapData, V: MapData> Table<K, V> {
    pub fn new(map: MapHandle, name: &'static str) -> Table<K, V> {
        assert_eq!((map.key_size() as usize, map.value_size() as usize), (size_of::<K>(), size_of::<V>()), "{name}");
        Table { map, name, types: PhantomData }
    }

    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let found = self.map.lookup(key.bytes(), MapFlags::ANY).doing(format!("map {}: look up", self.name))?;
        Ok(found.as_deref().and_then(V::from_bytes))
    }

    /// All entries, as they are while others may be writing.
    pub fn entries(&self) -> Result<Vec<(K, V)>> {
        let keys: Vec<K> = self.map.keys().filter_map(|key| K::from_bytes(&key)).collect();
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.extend(self.get(&key)?.map(|value| (key, value)));
        }
        Ok(found)
    }

    /// Each entry changes at once, in the order given.
    pub fn put_all(&self, entries: &[(K, V)]) -> Result<()> {
        if let [(key, value)] = entries {
            let put = self.map.update(key.bytes(), value.bytes(), MapFlags::ANY);
            return put.doing(format!("map {}: put", self.name));
        }
        for some in entries.chunks(BATCH) {
            let keys: Vec<u8> = some.iter().flat_map(|(key, _)| key.bytes()).copied().collect();
            let values: Vec<u8> = some.iter().flat_map(|(_, value)| value.bytes()).copied().collect();
            let put = self.map.update_batch(&keys, &values, some.len() as u32, MapFlags::ANY, MapFlags::ANY);
            put.doing(format!("map {}: put {} entries", self.name, some.len()))?;
        }
        Ok(())
    }

    /// Removes what is not wanted.
    pub fn retain(&self, is_wanted: impl Fn(&K) -> bool) -> Result<()> {
        let keys = self.map.keys().filter_map(|key| K::from_bytes(&key));
        self.remove_all(&keys.filter(|key| !is_wanted(key)).collect::<Vec<_>>())
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

/// Entries a call. The kernel holds nothing during one, but copies all of it.
const BATCH: usize = 4096;
