//! Tables of the datagrams that may be answered: one for each pod, so that no pod can evict another's entries.

use crate::error::{Doing, Result};
use crate::layout::MapData;
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::os::fd::{AsFd, AsRawFd};

/// `struct conversation` -> when it was last used.
const KEY: u32 = 20 + 2 + 1 + 1;
const VALUE: u32 = 8;
/// Size of one pod's table on a machine with few processors.
const LEAST: u32 = 4096;
/// Each processor reserves up to 128 free entries of an LRU table; the table has as many again for use.
const FOR_EACH_PROCESSOR: u32 = 256;

pub struct Conversations {
    /// Tables by the namespace's cookie.
    tables: MapHandle,
}

impl Conversations {
    pub fn new(tables: MapHandle) -> Conversations {
        Conversations { tables }
    }

    /// Creates the pod's table. A pod that has one, perhaps from an earlier process, keeps it.
    pub fn make(&self, cookie: u64) -> Result<()> {
        let doing = "map conversations: make a pod's table";
        if self.tables.lookup(cookie.bytes(), MapFlags::ANY).doing(doing)?.is_some() {
            return Ok(());
        }
        let size = (libbpf_rs::num_possible_cpus().doing(doing)? as u32 * FOR_EACH_PROCESSOR).max(LEAST);
        let options =
            bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..bpf_map_create_opts::default() };
        let table =
            MapHandle::create(MapType::LruHash, Some("conversations"), KEY, VALUE, size, &options).doing(doing)?;
        let number = table.as_fd().as_raw_fd().unsigned_abs();
        self.tables.update(cookie.bytes(), number.bytes(), MapFlags::ANY).doing(doing)
    }

    pub fn remove(&self, cookie: u64) {
        // The kernel waits for readers at each removal, even of a missing entry, so the entry is looked up first.
        if self.tables.lookup(cookie.bytes(), MapFlags::ANY).is_ok_and(|found| found.is_some()) {
            let _ = self.tables.delete(cookie.bytes());
        }
    }

    pub fn retain(&self, is_wanted: impl Fn(u64) -> bool) {
        let keys: Vec<u64> = self.tables.keys().filter_map(|key| u64::from_bytes(&key)).collect();
        keys.into_iter().filter(|cookie| !is_wanted(*cookie)).for_each(|cookie| self.remove(cookie));
    }
}
