//! The table of taken connections.

use crate::error::{Doing, Error, Result, errno};
use crate::tuple::{KEY, Tuple};
use libbpf_rs::libbpf_sys::{BPF_ANY, bpf_map_delete_elem, bpf_map_lookup_elem, bpf_map_update_elem};
use libbpf_rs::{MapInfo, MapType};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// Where frames go: `enum taken_state` (crates/bpf/src/taken.h).
const DELIVERED: u32 = 1;
const OBSERVED: u32 = 2;

/// `struct taken_value`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Value {
    state: u32,
    is_seen: u32,
}

/// The connections whose frames come to user space.
///
/// A run of the program that began before a change may still act on the old table: [`crate::wait_for_programs`] waits for it.
pub struct Taken {
    map: OwnedFd,
}

impl Taken {
    /// Refuses any other table: the calls below rely on the sizes of keys and values.
    pub(crate) fn new(map: OwnedFd) -> Result<Taken> {
        let info = MapInfo::new(map.as_fd()).map_err(|_| Error::NotADevice("the table is no BPF map"))?.info;
        let is_ours = info.key_size as usize == KEY && info.value_size as usize == size_of::<Value>();
        if !is_ours || MapType::from(info.type_) != MapType::Hash {
            return Err(Error::NotADevice("the table is another BPF map"));
        }
        Ok(Taken { map })
    }

    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Adds a connection. Adding it again changes nothing: an entry that is exchanged could be missed by a program that looks it up
    /// at that moment.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::Call`].
    pub fn add(&self, tuple: &Tuple) -> Result<()> {
        if self.is_taken(tuple)? { Ok(()) } else { self.set(tuple, DELIVERED) }
    }

    /// From now on the first frame of the connection is noted, and all go to the kernel. A connection whose packets come by another
    /// device, or with other addresses, is never seen.
    ///
    /// # Errors
    ///
    /// As [`Taken::add`].
    pub fn observe(&self, tuple: &Tuple) -> Result<()> {
        self.set(tuple, OBSERVED)
    }

    /// Whether a frame of the connection has come since [`Taken::observe`].
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn is_seen(&self, tuple: &Tuple) -> Result<bool> {
        Ok(self.value(tuple)?.is_some_and(|value| value.state == OBSERVED && value.is_seen != 0))
    }

    /// Whether frames of the connection come to user space.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn is_taken(&self, tuple: &Tuple) -> Result<bool> {
        Ok(self.value(tuple)?.is_some_and(|value| value.state == DELIVERED))
    }

    fn set(&self, tuple: &Tuple, state: u32) -> Result<()> {
        let (key, value) = (tuple.key(), Value { state, ..Value::default() });
        // SAFETY: key and value have the sizes of the map's, and live during the call.
        let outcome = unsafe {
            bpf_map_update_elem(self.map.as_raw_fd(), key.as_ptr().cast(), (&raw const value).cast(), BPF_ANY.into())
        };
        match errno(outcome) {
            Err(Errno::TOOBIG | Errno::NOMEM) => Err(Error::Full { remote: tuple.remote }),
            other => other.doing("take a connection"),
        }
    }

    fn value(&self, tuple: &Tuple) -> Result<Option<Value>> {
        let (key, mut value) = (tuple.key(), Value::default());
        // SAFETY: as in `set`; the call writes to `value`, for which all bytes are valid.
        let outcome =
            unsafe { bpf_map_lookup_elem(self.map.as_raw_fd(), key.as_ptr().cast(), (&raw mut value).cast()) };
        match errno(outcome) {
            Err(Errno::NOENT) => Ok(None),
            other => other.map(|()| Some(value)).doing("look for a connection"),
        }
    }

    /// Removes a connection; false: it was not there.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn remove(&self, tuple: &Tuple) -> Result<bool> {
        let key = tuple.key();
        // SAFETY: the key has the size of the map's, and lives during the call.
        let outcome = unsafe { bpf_map_delete_elem(self.map.as_raw_fd(), key.as_ptr().cast()) };
        match errno(outcome) {
            Err(Errno::NOENT) => Ok(false),
            other => other.map(|()| true).doing("give a connection back"),
        }
    }
}
