//! The rings of this process, and their submission queues as shared with the kernel.

use super::{NO_SQARRAY, Params, SQE128};
use crate::critical::Lock;
use crate::fdtable::{self, Kind};
use crate::thread;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use sidestep_sys::lock::Taken;
use sidestep_sys::mem;

/// Most rings that are followed at once. libuv has one or two for each of its loops.
const RINGS: usize = 256;
/// mmap(2) offsets of the two parts (IORING_OFF_SQ_RING, IORING_OFF_SQES).
const QUEUE_AT: usize = 0;
const ENTRIES_AT: usize = 0x1000_0000;
/// Most entries of a queue (IORING_MAX_ENTRIES).
const MOST_ENTRIES: u32 = 32768;

/// Indices of words of struct io_uring_params: entries, flags, and offsets of words in the queue.
const ENTRIES: usize = 0;
const FLAGS: usize = 2;
const HEAD: usize = 10;
const TAIL: usize = 11;
const ARRAY: usize = 16;

pub struct Ring {
    /// Number of descriptors that stand for the ring; 0: the record is free.
    refs: AtomicU32,
    /// Entries before this position have been looked at. Guarded by the lock.
    seen: AtomicU32,
    entries: AtomicU32,
    flags: AtomicU32,
    /// Offsets of the kernel's words in the queue.
    head: AtomicU32,
    tail: AtomicU32,
    array: AtomicU32,
    queue: AtomicPtr<u8>,
    queue_len: AtomicUsize,
    sqes: AtomicPtr<u8>,
    lock: Lock,
}

static RING: [Ring; RINGS] = [const {
    Ring {
        refs: AtomicU32::new(0),
        seen: AtomicU32::new(0),
        entries: AtomicU32::new(0),
        flags: AtomicU32::new(0),
        head: AtomicU32::new(0),
        tail: AtomicU32::new(0),
        array: AtomicU32::new(0),
        queue: AtomicPtr::new(core::ptr::null_mut()),
        queue_len: AtomicUsize::new(0),
        sqes: AtomicPtr::new(core::ptr::null_mut()),
        lock: Lock::new(),
    }
}; RINGS];

pub fn get(index: u32) -> &'static Ring {
    &RING[index as usize % RINGS]
}

fn all() -> impl Iterator<Item = &'static Ring> {
    RING.iter().filter(|r| r.refs.load(Relaxed) != 0)
}

/// Records the ring that `fd` stands for. False: there is no room, or its queue cannot be mapped.
pub fn follow(fd: i32, params: &Params) -> bool {
    let claimed = (0..RINGS as u32).find(|i| get(*i).refs.compare_exchange(0, 1, AcqRel, Relaxed).is_ok());
    let Some(index) = claimed else { return false };
    let mapped = get(index).map(fd, params);
    let followed = mapped && fdtable::set(fd, Kind::Ring(index));
    if !followed {
        get(index).release();
    }
    followed
}

impl Ring {
    fn map(&self, fd: i32, params: &Params) -> bool {
        let entries = params[ENTRIES];
        if entries > MOST_ENTRIES || !entries.is_power_of_two() {
            return false;
        }
        let array = if params[FLAGS] & NO_SQARRAY == 0 { params[ARRAY] as usize + entries as usize * 4 } else { 0 };
        let len = [params[HEAD], params[TAIL]].into_iter().fold(array, |len, word| len.max(word as usize + 4));
        let (Ok(queue), Ok(sqes)) =
            (mem::file_at(fd, len, QUEUE_AT), mem::file_at(fd, entries as usize * stride(params[FLAGS]), ENTRIES_AT))
        else {
            return false; // what is mapped already stays mapped until the process ends
        };
        for (word, value) in [
            (&self.entries, entries),
            (&self.flags, params[FLAGS]),
            (&self.head, params[HEAD]),
            (&self.tail, params[TAIL]),
        ] {
            word.store(value, Relaxed);
        }
        self.array.store(params[ARRAY], Relaxed);
        self.seen.store(0, Relaxed);
        self.queue_len.store(len, Relaxed);
        self.sqes.store(sqes, Relaxed);
        self.queue.store(queue, Release);
        true
    }

    pub fn hold(&self) {
        self.refs.fetch_add(1, AcqRel);
    }

    /// Removes a descriptor. With the last one the mapping goes, which would keep the ring alive.
    pub fn release(&self) {
        // Reentered: this handler has interrupted a look at the entries, so the mapping stays.
        let is_locked = self.lock.lock(thread::tid()) != Taken::Reentered;
        if is_locked && self.refs.load(Acquire) == 1 {
            self.unmap();
        }
        // Under the lock: two threads may close the last two descriptors at once.
        self.refs.fetch_sub(1, AcqRel);
        if is_locked {
            self.lock.unlock();
        }
    }

    /// The caller holds the lock.
    fn unmap(&self) {
        let queue = self.queue.swap(core::ptr::null_mut(), AcqRel);
        if !queue.is_null() {
            let bytes = self.entries.load(Relaxed) as usize * stride(self.flags.load(Relaxed));
            // SAFETY: mapped by `map`. Whoever reads them holds the lock and has loaded the pointer under it.
            unsafe {
                mem::unmap(queue, self.queue_len.load(Relaxed));
                mem::unmap(self.sqes.load(Relaxed), bytes);
            }
        }
    }

    fn unlock(&self) {
        self.lock.reset_in_child();
    }

    /// A word that kernel and program share.
    ///
    /// # Safety
    /// `queue` must be the mapping that [`Ring::queue`] holds under the lock, and `offset` one of those that came with it.
    unsafe fn word(&self, queue: *mut u8, offset: u32) -> &AtomicU32 {
        // SAFETY: by contract. `map` has mapped every word that is asked for; the kernel has aligned it.
        unsafe { &*queue.add(offset as usize).cast::<AtomicU32>() }
    }

    /// Calls `each` for those of the next `submitted` entries that it has not been called for yet. False: that is impossible.
    pub fn for_each_new(&self, submitted: u32, each: impl FnMut(*mut u8)) -> bool {
        if self.lock.lock(thread::tid()) == Taken::Reentered {
            return false;
        }
        let queue = self.queue.load(Acquire);
        if !queue.is_null() {
            // SAFETY: just loaded, under the lock.
            unsafe { self.show(queue, submitted, each) };
        }
        self.lock.unlock();
        !queue.is_null()
    }

    /// # Safety
    /// As for [`Ring::word`].
    unsafe fn show(&self, queue: *mut u8, submitted: u32, mut each: impl FnMut(*mut u8)) {
        // SAFETY: by contract.
        let word = |offset: &AtomicU32| unsafe { self.word(queue, offset.load(Relaxed)) }.load(Acquire);
        let (head, tail) = (word(&self.head), word(&self.tail));
        let there = tail.wrapping_sub(head).min(submitted).min(self.entries.load(Relaxed));
        // Positions grow and wrap. Entries between head and `seen` were looked at before, at a call that could not submit them.
        let old = self.seen.load(Relaxed).wrapping_sub(head);
        let first = if old <= self.entries.load(Relaxed) { old.min(there) } else { 0 };
        for position in first..there {
            // SAFETY: by contract.
            if let Some(entry) = unsafe { self.entry(queue, head.wrapping_add(position)) } {
                each(entry);
            }
        }
        self.seen.store(head.wrapping_add(there), Relaxed);
    }

    /// The entry at a position. None: the array holds an invalid index there, and the kernel drops the entry.
    ///
    /// # Safety
    /// As for [`Ring::word`].
    unsafe fn entry(&self, queue: *mut u8, position: u32) -> Option<*mut u8> {
        let (entries, flags) = (self.entries.load(Relaxed), self.flags.load(Relaxed));
        let slot = position & (entries - 1);
        let index = match flags & NO_SQARRAY {
            // SAFETY: by contract; the array has a word for each entry.
            0 => unsafe { self.word(queue, self.array.load(Relaxed) + slot * 4) }.load(Relaxed),
            _ => slot,
        };
        // SAFETY: below the number of entries, so inside the mapping.
        (index < entries).then(|| unsafe { self.sqes.load(Relaxed).add(index as usize * stride(flags)) })
    }
}

/// Size of an entry in bytes.
fn stride(flags: u32) -> usize {
    if flags & SQE128 != 0 { 128 } else { 64 }
}

/// In a forked child: the parent's other threads do not exist here.
pub fn unlock_all() {
    all().for_each(|r| r.unlock());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_that_close_a_ring_at_once_leave_no_mapping() {
        const LEN: usize = 4096;
        let ring = get(RINGS as u32 - 1);
        for _ in 0..200 {
            let [queue, sqes] = [0; 2].map(|_| mem::anonymous(LEN, false).expect("a mapping"));
            ring.entries.store((LEN / stride(0)) as u32, Relaxed);
            ring.queue_len.store(LEN, Relaxed);
            ring.sqes.store(sqes, Relaxed);
            ring.queue.store(queue, Release);
            ring.refs.store(2, Release);
            let together = AtomicU32::new(0);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        thread::tid();
                        together.fetch_add(1, AcqRel);
                        while together.load(Acquire) < 2 {
                            core::hint::spin_loop();
                        }
                        ring.release();
                    });
                }
            });
            assert_eq!(ring.refs.load(Acquire), 0);
            assert!(ring.queue.load(Acquire).is_null(), "the kernel would keep the ring until the process ends");
        }
    }
}
