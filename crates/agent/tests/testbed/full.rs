//! Tables without room.

use crate::agent::Node;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// A table of the agent's programs.
pub fn table(node: &Node, name: &str) -> MapHandle {
    let directories = std::fs::read_dir(node.pins().join("services")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths = directories.map(|path| path.join(name)).filter(|path| path.exists());
    MapHandle::from_pinned_path(paths.next().unwrap()).unwrap()
}

/// Fills the table with meaningless entries, and removes them on drop.
pub struct Full {
    table: MapHandle,
    keys: Vec<u8>,
}

impl Full {
    pub fn new(table: MapHandle) -> Full {
        let (key, value, room) = (table.key_size() as usize, table.value_size() as usize, table.max_entries() as usize);
        let taken = table.keys().count();
        // The last bytes make the keys unique; the first ones belong to no namespace.
        let keys: Vec<u8> = (0..room - taken)
            .flat_map(|n| {
                let mut one = vec![0xee; key];
                one[key - 4..].copy_from_slice(&(n as u32).to_ne_bytes());
                one
            })
            .collect();
        let count = (room - taken) as u32;
        table.update_batch(&keys, &vec![0; value * count as usize], count, MapFlags::ANY, MapFlags::ANY).unwrap();
        Full { table, keys }
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let key = self.table.key_size() as usize;
        // An agent may have removed some: they are of no pod.
        self.keys.chunks(key).for_each(|key| drop(self.table.delete(key)));
    }
}
