//! The table of taken connections.

use crate::error::{Doing, Error, Result, errno};
use crate::tuple::{KEY, Tuple};
use libbpf_rs::libbpf_sys::{BPF_NOEXIST, bpf_map_delete_elem, bpf_map_update_elem};
use libbpf_rs::{MapInfo, MapType};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// Size of a value in bytes. It has no meaning.
const VALUE: usize = 1;

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
        let is_ours = info.key_size as usize == KEY && info.value_size as usize == VALUE;
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
        let (key, value) = (tuple.key(), [1u8; VALUE]);
        // SAFETY: key and value have the sizes of the map's, and live during the call.
        let outcome = unsafe {
            bpf_map_update_elem(self.map.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), BPF_NOEXIST.into())
        };
        match errno(outcome) {
            Err(Errno::EXIST) => Ok(()),
            Err(Errno::TOOBIG | Errno::NOMEM) => Err(Error::Full { remote: tuple.remote }),
            other => other.doing("take a connection"),
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
