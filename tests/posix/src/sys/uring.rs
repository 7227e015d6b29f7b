//! The least of io_uring: one operation at a time, through the libc function `syscall`.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Fd;
use super::errno::{Errno, Outcome, outcome};

/// struct io_uring_params, by its offsets of words and its size (linux/io_uring.h).
#[repr(C)]
#[derive(Default)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    rest: [u32; 7],
    sq: [u32; 10],
    cq: [u32; 10],
}

/// struct io_uring_sqe, 64 bytes.
#[repr(C)]
#[derive(Default)]
struct Entry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    address: u64,
    len: u32,
    events: u32,
    user_data: u64,
    rest: [u64; 3],
}

const ENTRIES: u32 = 4;
const OFFSET_ENTRIES: i64 = 0x1000_0000;
const OP_POLL_ADD: u8 = 6;
const OP_CLOSE: u8 = 19;
const OP_READ: u8 = 22;
const OP_WRITE: u8 = 23;
const GET_EVENTS: u32 = 1;

pub struct Ring {
    fd: Fd,
    /// Both queues in one mapping (every kernel since 5.4 offers that).
    rings: *mut u8,
    entries: *mut Entry,
    params: Params,
}

impl Default for Ring {
    fn default() -> Ring {
        Ring::new()
    }
}

impl Ring {
    pub fn new() -> Ring {
        let mut params = Params::default();
        // SAFETY: the parameters are a live value of the size that the kernel expects.
        let fd = outcome(unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &mut params) })
            .expect("io_uring_setup") as Fd;
        // Offsets: word 6 of the submission side is its array, word 5 of the completion side its
        // entries of 16 bytes.
        let size = (params.sq[6] + params.sq_entries * 4).max(params.cq[5] + params.cq_entries * 16);
        let rings = map(fd, size as usize, 0);
        let entries = map(fd, params.sq_entries as usize * size_of::<Entry>(), OFFSET_ENTRIES).cast();
        Ring { fd, rings, entries, params }
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the offsets come from the kernel and lie within the mapping, aligned.
        unsafe { &*self.rings.add(offset as usize).cast::<AtomicU32>() }
    }

    /// Submits one entry and waits for its completion.
    fn run(&mut self, entry: Entry) -> Outcome {
        let (tail, mask) = (self.word(self.params.sq[1]), self.word(self.params.sq[2]));
        let slot = tail.load(Ordering::Relaxed) & mask.load(Ordering::Relaxed);
        // SAFETY: the slot is below the number of entries, and the kernel owns none of them now.
        unsafe { self.entries.add(slot as usize).write(entry) };
        self.word(self.params.sq[6] + slot * 4).store(slot, Ordering::Relaxed);
        tail.fetch_add(1, Ordering::Release);
        // SAFETY: numbers only.
        outcome(unsafe {
            libc::syscall(libc::SYS_io_uring_enter, self.fd, 1u32, 1u32, GET_EVENTS, null_mut::<u8>(), 0usize)
        })?;
        let (head, mask) = (self.word(self.params.cq[0]), self.word(self.params.cq[2]));
        let slot = head.load(Ordering::Acquire) & mask.load(Ordering::Relaxed);
        // A completion is user data (8 bytes), then the result.
        let result = self.word(self.params.cq[5] + slot * 16 + 8).load(Ordering::Relaxed) as i32;
        head.fetch_add(1, Ordering::Release);
        if result < 0 { Err(Errno(-result)) } else { Ok(result as usize) }
    }

    pub fn read(&mut self, fd: Fd, buf: &mut [u8]) -> Outcome {
        let (address, len) = (buf.as_mut_ptr() as u64, buf.len() as u32);
        self.run(Entry { opcode: OP_READ, fd, offset: u64::MAX, address, len, ..Entry::default() })
    }

    pub fn write(&mut self, fd: Fd, buf: &[u8]) -> Outcome {
        let (address, len) = (buf.as_ptr() as u64, buf.len() as u32);
        self.run(Entry { opcode: OP_WRITE, fd, offset: u64::MAX, address, len, ..Entry::default() })
    }

    /// Waits for one of these events; the answer is the mask.
    pub fn poll(&mut self, fd: Fd, events: i16) -> Outcome {
        self.run(Entry { opcode: OP_POLL_ADD, fd, events: events as u32, ..Entry::default() })
    }

    pub fn close(&mut self, fd: Fd) -> Outcome {
        self.run(Entry { opcode: OP_CLOSE, fd, ..Entry::default() })
    }
}

fn map(fd: Fd, size: usize, offset: i64) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping of the ring's own memory, at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), size, protection, libc::MAP_SHARED, fd, offset) };
    assert_ne!(at, libc::MAP_FAILED, "mapping the ring: {:?}", Errno::last());
    at.cast()
}
