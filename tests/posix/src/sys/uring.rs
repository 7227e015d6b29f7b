//! A minimal io_uring, through the libc function `syscall`.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Fd;
use super::errno::{EINVAL, Errno, Outcome, outcome};

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

impl Params {
    /// Bytes of the queues and of the entries. Word 6 of the submission side is the offset of its array, word 5 of the completion side
    /// that of its entries of 16 bytes.
    fn sizes(&self) -> [usize; 2] {
        let rings = (self.sq[6] + self.sq_entries * 4).max(self.cq[5] + self.cq_entries * 16);
        [rings as usize, self.sq_entries as usize * size_of::<Entry>()]
    }
}

/// struct io_uring_sqe, 64 bytes.
#[repr(C)]
#[derive(Default, Clone, Copy)]
pub struct Entry {
    pub opcode: u8,
    pub flags: u8,
    pub ioprio: u16,
    pub fd: i32,
    pub offset: u64,
    pub address: u64,
    pub len: u32,
    pub events: u32,
    pub user_data: u64,
    pub buffer: u16,
    pub personality: u16,
    pub other_fd: i32,
    pub rest: [u64; 2],
}

const ENTRIES: u32 = 8;
const OFFSET_ENTRIES: i64 = 0x1000_0000;
pub const OP_NOP: u8 = 0;
const OP_POLL_ADD: u8 = 6;
pub const OP_SENDMSG: u8 = 9;
pub const OP_CLOSE: u8 = 19;
pub const OP_FILES_UPDATE: u8 = 20;
pub const OP_READ: u8 = 22;
pub const OP_WRITE: u8 = 23;
pub const OP_EPOLL_CTL: u8 = 29;
pub const FIXED_FILE: u8 = 1;
pub const LINK: u8 = 1 << 2;
pub const SQPOLL: u32 = 1 << 1;
pub const SINGLE_ISSUER: u32 = 1 << 12;
pub const DEFER_TASKRUN: u32 = 1 << 13;
pub const NO_SQARRAY: u32 = 1 << 16;
const GET_EVENTS: u32 = 1;
const REGISTER_FILES: u32 = 2;
const REGISTER_RING_FDS: u32 = 20;
const REGISTER_RESIZE_RINGS: u32 = 33;
const BY_REGISTERED_RING: u32 = 1 << 31;

pub struct Ring {
    pub fd: Fd,
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
        Ring::with(0).expect("io_uring_setup")
    }

    pub fn with(flags: u32) -> Result<Ring, Errno> {
        let mut params = Params { flags, ..Params::default() };
        // SAFETY: the parameters are a live value of the size that the kernel expects.
        let fd = outcome(unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &mut params) })? as Fd;
        let (rings, entries) = map_queues(fd, &params);
        Ok(Ring { fd, rings, entries, params })
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the offsets come from the kernel and lie within the mapping, aligned.
        unsafe { &*self.rings.add(offset as usize).cast::<AtomicU32>() }
    }

    /// Submits one entry and waits for its completion.
    pub fn run(&mut self, entry: Entry) -> Outcome {
        self.run_all(&[entry]).pop().expect("one result")
    }

    /// Submits entries in one call and waits for all of them; the results are in the order of the entries.
    pub fn run_all(&mut self, all: &[Entry]) -> Vec<Outcome> {
        for (number, entry) in all.iter().enumerate() {
            self.push(Entry { user_data: number as u64, ..*entry });
        }
        let n = all.len() as u32;
        let taken = outcome(self.enter(n, n)).expect("io_uring_enter");
        assert_eq!(taken, all.len(), "entries that the kernel has taken");
        let mut results = vec![Ok(usize::MAX); all.len()];
        for _ in all {
            let (number, result) = self.take();
            results[number as usize] = result;
        }
        results
    }

    /// Puts an entry into the queue.
    fn push(&mut self, entry: Entry) {
        let (tail, mask) = (self.word(self.params.sq[1]), self.word(self.params.sq[2]));
        let slot = tail.load(Ordering::Relaxed) & mask.load(Ordering::Relaxed);
        // SAFETY: the slot is below the number of entries, and the kernel owns none of them now.
        unsafe { self.entries.add(slot as usize).write(entry) };
        if self.params.flags & NO_SQARRAY == 0 {
            self.word(self.params.sq[6] + slot * 4).store(slot, Ordering::Relaxed);
        }
        tail.fetch_add(1, Ordering::Release);
    }

    fn enter(&self, submit: u32, complete: u32) -> i64 {
        // SAFETY: numbers only.
        unsafe {
            libc::syscall(libc::SYS_io_uring_enter, self.fd, submit, complete, GET_EVENTS, null_mut::<u8>(), 0usize)
        }
    }

    /// Takes one completion: user data (8 bytes), then the result.
    fn take(&mut self) -> (u64, Outcome) {
        let (head, mask) = (self.word(self.params.cq[0]), self.word(self.params.cq[2]));
        let at = self.params.cq[5] + (head.load(Ordering::Acquire) & mask.load(Ordering::Relaxed)) * 16;
        let number = u64::from(self.word(at).load(Ordering::Relaxed));
        let result = self.word(at + 8).load(Ordering::Relaxed) as i32;
        head.fetch_add(1, Ordering::Release);
        (number, if result < 0 { Err(Errno(-result)) } else { Ok(result as usize) })
    }

    pub fn read(&mut self, fd: Fd, buf: &mut [u8]) -> Outcome {
        self.run(Ring::reading(fd, buf))
    }

    pub fn reading(fd: Fd, buf: &mut [u8]) -> Entry {
        let (address, len) = (buf.as_mut_ptr() as u64, buf.len() as u32);
        Entry { opcode: OP_READ, fd, offset: u64::MAX, address, len, ..Entry::default() }
    }

    pub fn write(&mut self, fd: Fd, buf: &[u8]) -> Outcome {
        self.run(Ring::writing(fd, buf))
    }

    pub fn writing(fd: Fd, buf: &[u8]) -> Entry {
        let (address, len) = (buf.as_ptr() as u64, buf.len() as u32);
        Entry { opcode: OP_WRITE, fd, offset: u64::MAX, address, len, ..Entry::default() }
    }

    /// Waits for one of these events; the answer is the mask.
    pub fn poll(&mut self, fd: Fd, events: i16) -> Outcome {
        self.run(Entry { opcode: OP_POLL_ADD, fd, events: events as u32, ..Entry::default() })
    }

    pub fn close(&mut self, fd: Fd) -> Outcome {
        self.run(Entry { opcode: OP_CLOSE, fd, ..Entry::default() })
    }

    /// epoll_ctl(2). The event must live until the entry has been run.
    pub fn interest(set: Fd, op: libc::c_int, fd: Fd, event: &libc::epoll_event) -> Entry {
        let address = std::ptr::from_ref(event) as u64;
        Entry { opcode: OP_EPOLL_CTL, fd: set, offset: fd as u64, address, len: op as u32, ..Entry::default() }
    }

    /// Unmaps the queues: the mappings keep the ring alive after its last descriptor is closed.
    pub fn unmap(mut self) {
        self.unmap_queues();
    }

    fn unmap_queues(&mut self) {
        let [rings, entries] = self.params.sizes();
        // SAFETY: the two mappings of this ring, which nobody uses any more.
        unsafe {
            assert_eq!(libc::munmap(self.rings.cast(), rings), 0);
            assert_eq!(libc::munmap(self.entries.cast(), entries), 0);
        }
    }

    /// Registers these files: entries can name them by index.
    pub fn register_files(&self, fds: &[Fd]) {
        assert_eq!(register(self.fd, REGISTER_FILES, &mut fds.to_vec()), Ok(0), "IORING_REGISTER_FILES");
    }

    /// As [`Ring::register_files`], with the ring named by its index among those that this thread has registered.
    pub fn register_files_by_index(&self, fds: &[Fd]) {
        // struct io_uring_rsrc_update: the index, here any that is free, and the ring. The kernel writes the index.
        let mut update = [[u64::from(u32::MAX), self.fd as u64]];
        assert_eq!(register(self.fd, REGISTER_RING_FDS, &mut update), Ok(1), "IORING_REGISTER_RING_FDS");
        let index = update[0][0] as u32 as Fd;
        match register(index, REGISTER_FILES | BY_REGISTERED_RING, &mut fds.to_vec()) {
            Err(EINVAL) => self.register_files(fds), // before Linux 6.3
            result => assert_eq!(result, Ok(0), "IORING_REGISTER_FILES"),
        }
    }

    /// Gives an empty ring larger queues. Before Linux 6.13 it keeps those that it has.
    pub fn resize(&mut self) {
        let mut params = [Params { sq_entries: 2 * ENTRIES, ..Params::default() }];
        match register(self.fd, REGISTER_RESIZE_RINGS, &mut params) {
            Err(EINVAL) => return,
            result => assert_eq!(result, Ok(0), "IORING_REGISTER_RESIZE_RINGS"),
        }
        self.unmap_queues();
        [self.params] = params;
        (self.rings, self.entries) = map_queues(self.fd, &self.params);
    }
}

/// io_uring_register(2), which may write to its arguments.
fn register<T>(ring: Fd, operation: u32, arguments: &mut [T]) -> Outcome {
    let (at, n) = (arguments.as_mut_ptr(), arguments.len() as u32);
    // SAFETY: as many live arguments as are said; the callers give those that the operation takes.
    outcome(unsafe { libc::syscall(libc::SYS_io_uring_register, ring, operation, at, n) })
}

/// Both queues, and the entries.
fn map_queues(fd: Fd, params: &Params) -> (*mut u8, *mut Entry) {
    let [rings, entries] = params.sizes();
    (map(fd, rings, 0), map(fd, entries, OFFSET_ENTRIES).cast())
}

fn map(fd: Fd, size: usize, offset: i64) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping of the ring's own memory, at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), size, protection, libc::MAP_SHARED, fd, offset) };
    assert_ne!(at, libc::MAP_FAILED, "mapping the ring: {:?}", Errno::last());
    at.cast()
}
