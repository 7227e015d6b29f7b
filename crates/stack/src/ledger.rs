//! The records of all connections: a file in memory that worker and keeper share.

use crate::layout::{SIZE, Words};
use crate::mapping::Mapping;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, ftruncate, memfd_create, seek};
use rustix::io::{self, Errno};

/// The file, mapped.
pub struct Ledger {
    file: OwnedFd,
    mapping: Mapping,
    records: u32,
}

impl Ledger {
    /// Makes the file, with so many free records. Only records in use take memory.
    pub fn create(records: u32) -> io::Result<Ledger> {
        let file = memfd_create("sidestep-ledger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, u64::from(records) * SIZE as u64)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ledger::open(file)
    }

    /// Maps a file that [`Ledger::create`] has made.
    pub fn open(file: OwnedFd) -> io::Result<Ledger> {
        let records = rustix::fs::fstat(&file)?.st_size as usize / SIZE;
        let mapping = Mapping::new(&file, records * SIZE)?;
        Ok(Ledger { file, mapping, records: records as u32 })
    }

    /// How many there are.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// The records that were ever written to, in ascending order. The others are free, and a look at one would take a page of memory.
    pub fn touched(&self) -> io::Result<Vec<u32>> {
        let (mut touched, mut from) = (Vec::new(), 0);
        loop {
            match seek(&self.file, SeekFrom::Data(from)) {
                Ok(at) => touched.push((at / SIZE as u64) as u32),
                Err(Errno::NXIO) => return Ok(touched),
                Err(error) => return Err(error),
            }
            from = touched.last().map_or(0, |record| (u64::from(*record) + 1) * SIZE as u64);
        }
    }

    /// The file, for another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn words(&self, record: u32) -> &Words {
        // SAFETY: the words are atomics and padding.
        unsafe { self.mapping.at(record as usize * SIZE) }
    }

    /// Copies bytes into a record. Only the thread that has the connection in its hands writes and reads plain bytes of it.
    pub(crate) fn write(&self, record: u32, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= SIZE);
        self.mapping.write(record as usize * SIZE + at, bytes);
    }

    pub(crate) fn read(&self, record: u32, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= SIZE);
        self.mapping.read(record as usize * SIZE + at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_nobody_has_written_to_take_no_memory() {
        let ledger = Ledger::create(1000).expect("a ledger");
        assert_eq!(ledger.touched(), Ok(vec![]));
        ledger.write(999, SIZE - 1, &[1]);
        ledger.write(7, 0, &[1]);
        assert_eq!(ledger.touched(), Ok(vec![7, 999]));
        let pages = rustix::fs::fstat(ledger.file()).expect("its size").st_blocks * 512 / 4096;
        assert_eq!(pages, 2);
    }
}
