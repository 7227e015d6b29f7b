//! Tables of BPF programs that have no room.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::path::Path;

/// The table of this name, of the programs for Services, capture and policy that are pinned below `pins`.
pub fn table(pins: &Path, name: &str) -> MapHandle {
    let directories = std::fs::read_dir(pins.join("services")).expect("pinned programs");
    let mut paths = directories.map(|entry| entry.expect("an entry").path().join(name)).filter(|path| path.exists());
    let path = paths.next().unwrap_or_else(|| panic!("no table {name} is pinned below {}", pins.display()));
    MapHandle::from_pinned_path(path).expect("open the table")
}

/// Meaningless entries that fill a hash table. They are removed on drop.
pub struct Filler {
    table: MapHandle,
    keys: Vec<u8>,
}

impl Filler {
    /// Fills the table.
    pub fn new(table: MapHandle) -> Filler {
        Filler::leaving(table, 0)
    }

    /// Fills the table, but for this number of entries.
    pub fn leaving(table: MapHandle, room: usize) -> Filler {
        let (key, value) = (table.key_size() as usize, table.value_size() as usize);
        let count = table.max_entries() as usize - table.keys().count() - room;
        // The last bytes make the keys unique; the first ones are no number of a namespace, of an identity or of a Service.
        let unique = |number: usize| [vec![0xee; key - 4], (number as u32).to_ne_bytes().to_vec()].concat();
        let keys: Vec<u8> = (0..count).flat_map(unique).collect();
        let (values, flags) = (vec![0; value * count], MapFlags::ANY);
        table.update_batch(&keys, &values, count as u32, flags, flags).expect("room for the entries");
        Filler { table, keys }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let key = self.table.key_size() as usize;
        // Somebody may have removed some since they belong to nobody.
        self.keys.chunks(key).for_each(|key| drop(self.table.delete(key)));
    }
}
