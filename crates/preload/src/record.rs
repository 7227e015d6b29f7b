//! The record of one connection, in memory that only a process and the children it forks share.

use crate::counters;
use crate::critical::Lock;
use crate::gate::Gate;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use sidestep_abi::Reason;
use sidestep_abi::link::Slot;
use sidestep_conn::{Course, Event, Half, Holders, Phase, Rx, Writer, course, phase};
use sidestep_ring::{Data, counters as shared, page};
use sidestep_sys::fd as fdsys;
use sidestep_sys::lock::Taken;

/// Bits of [`Conn::flags`], besides the connection's phase and the courses of its directions.
pub mod flag {
    /// O_NONBLOCK of the open file description.
    pub const NONBLOCK: u32 = 1;
    /// A wait of the library has seen the connection.
    pub const WAITED: u32 = 1 << 1;
    /// The kernel socket may have an end or an error to report: ask it.
    pub const HINT: u32 = 1 << 2;
    /// A write found no space, and no wait has reported space since.
    pub const TX_BLOCKED: u32 = 1 << 3;
    /// Counted as upgraded / as returned.
    pub const UPGRADED: u32 = 1 << 4;
    pub const RETURNED: u32 = 1 << 5;
    /// shutdown(SHUT_WR) was called.
    pub const TX_SHUT: u32 = 1 << 6;
    /// shutdown(SHUT_RD) was called.
    pub const RX_SHUT: u32 = 1 << 7;
    /// A reason code has been counted.
    pub const REASONED: u32 = 1 << 8;
    /// The peer sleeps, and ringing its doorbell failed.
    pub const UNHEARD: u32 = 1 << 9;
    /// TCP_INQ is set: recvmsg(2) reports how many bytes are left to be read.
    pub const TELLS_UNREAD: u32 = 1 << 10;
    /// The peer is the stack.
    pub const STACK: u32 = 1 << 11;
    /// The last read by kernel had MSG_DONTWAIT.
    pub const IMPATIENT: u32 = 1 << 12;
}

/// Value of [`Conn::owner`]: no process has this place.
pub const NOBODY: u32 = u32::MAX - 1;

/// Value of a timeout: calls that would block fail at once.
pub const NO_WAIT: u64 = u64::MAX;

/// One connection.
#[repr(C, align(64))]
pub struct Conn {
    pub phase: phase::Cell,
    /// The course of the direction that this process writes.
    pub course: course::Cell,
    /// Threads inside native calls on this connection.
    pub gate: Gate,
    pub flags: AtomicU32,
    /// Successful reads and writes.
    pub ops: AtomicU32,
    /// Number of operations in quick succession, up to the last one.
    pub quick_ops: AtomicU32,
    /// Time of the last operation, in coarse ticks.
    pub last_op: AtomicU32,
    pub reason: AtomicU32,
    pub link: AtomicU32,
    pub slot: AtomicU32,
    pub side: AtomicU32,
    pub next_free: AtomicU32,
    /// Processes of the family that hold the connection (bit = place in the family).
    pub holders: Holders,
    /// The process (place in the family) that attached the connection; [`NOBODY`]: it has ended.
    pub owner: AtomicU32,
    /// The broker that has the offer ([`crate::broker::link_era`]); 0: no broker has it.
    pub offered_in: AtomicU32,
    /// When (ticks) the broker was last sent the socket for the offer.
    pub offered_at: AtomicU64,
    /// Value of `Side::froze` of the reading side when our writer last looked.
    pub tx_froze: AtomicU32,
    /// How often a wait found space for a writer that had found none.
    pub spaces: AtomicU32,
    /// Tail of the ring that we read, when a wait in an epoll set last looked at the connection.
    pub seen_tail: AtomicU64,

    /// Bytes read and written natively.
    pub early_rx: AtomicU64,
    pub early_tx: AtomicU64,
    /// Microseconds; 0: none; or [`NO_WAIT`].
    pub rx_timeout_us: AtomicU64,
    pub tx_timeout_us: AtomicU64,
    /// Time (ticks) before which a reader that finds the ring empty need not ask the kernel.
    pub rx_asked: AtomicU64,
    /// A wait that also asks the kernel has found news of the connection since the reading (or writing) end last looked here. That
    /// end need not ask the kernel once more.
    pub rx_waited: AtomicBool,
    pub tx_waited: AtomicBool,
    pub words: AtomicPtr<Slot>,
    tx_ring: AtomicPtr<u8>,
    rx_ring: AtomicPtr<u8>,
    ring_size: AtomicU64,
    /// How long blocking calls on it spin.
    pub spin: crate::spin::Spin,
    /// Until when it is not offered.
    pub pause: crate::offer_pause::Pause,

    rx_lock: Lock,
    rx: UnsafeCell<Rx>,
    tx_lock: Lock,
    tx: UnsafeCell<Writer>,
}

// SAFETY: everything is atomic but `rx` and `tx`, which are only handed out under their locks.
unsafe impl Sync for Conn {}

/// This thread already holds the lock: it runs a signal handler that does I/O on the connection that it interrupted.
pub struct Reentered;

impl Conn {
    /// A wait has news of the connection. The same wait would have found an end or an error in the kernel.
    #[inline]
    pub fn mark_waited_for(&self) {
        self.rx_waited.store(true, Relaxed);
        self.tx_waited.store(true, Relaxed);
    }

    /// Whether [`rx_waited`](Conn::rx_waited) or its counterpart was set since the last call. Resets it.
    pub fn was_waited_for(&self, end: &AtomicBool) -> bool {
        end.load(Relaxed) && {
            end.store(false, Relaxed);
            true
        }
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Acquire) & flag != 0
    }

    /// Whether a call with these flags (MSG_*) waits where the kernel would.
    #[inline]
    pub fn may_wait(&self, flags: i32) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && !self.has(flag::NONBLOCK)
    }

    /// Whether the program has set O_NONBLOCK where the library does not see it: by a system call instruction, or in another program. It
    /// may wait there, too. `fd`: a descriptor of the connection.
    #[cold]
    pub fn is_nonblocking_unseen(&self, fd: i32) -> bool {
        let is_set = |flags| flags as i32 & libc::O_NONBLOCK != 0;
        !self.has(flag::NONBLOCK) && fdsys::fcntl(fd, libc::F_GETFL, 0).is_ok_and(is_set) && {
            self.raise(flag::NONBLOCK);
            true
        }
    }

    pub fn raise(&self, flag: u32) -> bool {
        self.flags.fetch_or(flag, AcqRel) & flag == 0
    }

    pub fn lower(&self, flag: u32) {
        if self.has(flag) {
            self.flags.fetch_and(!flag, AcqRel);
        }
    }

    pub fn put(&self, flag: u32, on: bool) {
        if on {
            if !self.has(flag) {
                self.raise(flag);
            }
        } else {
            self.lower(flag);
        }
    }

    #[inline]
    pub fn is_attached(&self) -> bool {
        self.phase.is_attached()
    }

    /// Points the record at its slot and its two rings.
    ///
    /// # Safety
    /// The pointers must stay valid for ever, those of the rings for reads and writes of `size` bytes.
    pub unsafe fn map(&self, words: *mut Slot, tx_ring: *mut u8, rx_ring: *mut u8, size: usize) {
        self.words.store(words, Relaxed);
        self.tx_ring.store(tx_ring, Relaxed);
        self.rx_ring.store(rx_ring, Relaxed);
        self.ring_size.store(size as u64, Relaxed);
    }

    #[inline]
    pub fn words(&self) -> &Slot {
        // SAFETY: set by `map` before the connection is attached; mappings of links are never unmapped, only
        // replaced by other memory of the same size (link.rs), so the pointer stays valid.
        unsafe { &*self.words.load(Relaxed) }
    }

    #[inline]
    pub fn my_side(&self) -> usize {
        (self.side.load(Relaxed) & 1) as usize
    }

    /// The direction that we read.
    #[inline]
    pub fn rx_half(&self) -> Half<'_> {
        self.half(1 - self.my_side())
    }

    /// The direction that we write.
    #[inline]
    pub fn tx_half(&self) -> Half<'_> {
        self.half(self.my_side())
    }

    #[inline]
    fn half(&self, writing: usize) -> Half<'_> {
        Half::of(self.words(), writing, self.ring_size.load(Relaxed) as usize)
    }

    #[inline]
    pub fn tx_data(&self) -> Data {
        // SAFETY: as for `words`: `map` has set pointer and size of a ring of that size.
        unsafe { Data::new(self.tx_ring.load(Relaxed), self.ring_size.load(Relaxed) as usize) }
    }

    #[inline]
    pub fn rx_data(&self) -> Data {
        // SAFETY: as above.
        unsafe { Data::new(self.rx_ring.load(Relaxed), self.ring_size.load(Relaxed) as usize) }
    }

    /// Runs `work` on the reading end, under its lock.
    #[inline]
    pub fn with_rx<T>(&self, work: impl FnOnce(&mut Rx) -> T) -> Result<T, Reentered> {
        if self.rx_lock.lock(crate::thread::tid()) == Taken::Reentered {
            return Err(Reentered);
        }
        // SAFETY: under the lock nobody else has a reference.
        let result = work(unsafe { &mut *self.rx.get() });
        self.rx_lock.unlock();
        Ok(result)
    }

    /// Runs `work` on the writing end, under its lock.
    #[inline]
    pub fn with_tx<T>(&self, work: impl FnOnce(&mut Writer) -> T) -> Result<T, Reentered> {
        if self.tx_lock.lock(crate::thread::tid()) == Taken::Reentered {
            return Err(Reentered);
        }
        // SAFETY: under the lock nobody else has a reference.
        let end = unsafe { &mut *self.tx.get() };
        let result = work(end);
        self.course.set(end.tx.course());
        self.tx_lock.unlock();
        Ok(result)
    }

    /// Locks both ends until [`Conn::unlock_ends`]. Err: this thread holds one of the locks.
    pub fn lock_ends(&self) -> Result<(), Reentered> {
        let me = crate::thread::tid();
        if self.rx_lock.lock(me) == Taken::Reentered {
            return Err(Reentered);
        }
        if self.tx_lock.lock(me) == Taken::Reentered {
            self.rx_lock.unlock();
            return Err(Reentered);
        }
        Ok(())
    }

    pub fn unlock_ends(&self) {
        self.tx_lock.unlock();
        self.rx_lock.unlock();
    }

    /// All processes that held the connection are dead: frees the locks that their threads died with. A thread of the next
    /// connection's may have the number of such a thread.
    pub fn unlock_for_the_dead(&self) {
        self.rx_lock.reset_in_child();
        self.tx_lock.reset_in_child();
    }

    /// Bytes so far: (kernel rx, kernel tx, ring rx, ring tx).
    pub fn bytes(&self) -> [u64; 4] {
        let early = [self.early_rx.load(Relaxed), self.early_tx.load(Relaxed)];
        match self.phase.phase() {
            Phase::Closed => {}
            phase if phase.is_attached() => {}
            Phase::Demoted { .. } => {
                let ring = self.ring_bytes();
                return [early[0], early[1], ring[0], ring[1]];
            }
            _ => return [early[0], early[1], 0, 0],
        }
        let rx = self.with_rx(|rx| (rx.kernel, rx.ring)).unwrap_or((early[0], 0));
        let tx = self.with_tx(|end| (end.tx.kernel(), end.tx.ring)).unwrap_or((early[1], 0));
        [rx.0, tx.0, rx.1, tx.1]
    }

    fn ring_bytes(&self) -> [u64; 2] {
        [self.with_rx(|rx| rx.ring).unwrap_or(0), self.with_tx(|end| end.tx.ring).unwrap_or(0)]
    }

    /// Stores why the connection is on the kernel, and counts the reason once.
    pub fn blame(&self, reason: Reason) {
        self.reason.store(reason as u32, Relaxed);
        if self.raise(flag::REASONED) {
            counters::count(reason);
        }
        if self.is_attached() {
            shared::set_reason(&self.words().counters[self.my_side()], reason);
        }
    }

    /// The kernel is to carry for good. False: so it was already.
    pub fn keep(&self) -> bool {
        self.phase.go(Event::Keep).is_some()
    }

    /// The stack has let go for this reason: the kernel is to carry until the connection is offered again.
    pub fn keep_for_now(&self, reason: Reason) {
        if self.phase.go(Event::KeepForNow).is_some() && reason == Reason::Bulk {
            self.reason.store(reason as u32, Relaxed);
            self.pause.begin();
        }
    }

    /// Stores why the connection stays on the kernel for good.
    pub fn keep_on_kernel(&self, reason: Reason) {
        self.keep();
        self.blame(reason);
    }

    /// Counts the connection as upgraded, once.
    #[inline]
    pub fn mark_upgraded(&self) {
        if !self.has(flag::UPGRADED) && self.raise(flag::UPGRADED) {
            page::count_upgraded(counters::page());
        }
    }

    /// Counts the connection as returned, once.
    pub fn mark_returned(&self) {
        if !self.has(flag::RETURNED) && self.raise(flag::RETURNED) {
            page::count_returned(counters::page());
        }
    }

    /// Prepares the record for a new connection. The holder comes last: whoever finds one finds the connection's generation, too.
    pub fn reset(&self, flags: u32, holder: u64) {
        self.gate.renew();
        for word in [&self.ops, &self.quick_ops, &self.last_op, &self.offered_in, &self.reason, &self.tx_froze] {
            word.store(0, Relaxed);
        }
        for word in [&self.early_rx, &self.early_tx, &self.rx_timeout_us, &self.tx_timeout_us, &self.rx_asked] {
            word.store(0, Relaxed);
        }
        self.seen_tail.store(0, Relaxed);
        self.pause.reset();
        self.flags.store(flags, Relaxed);
        self.course.set(Course::Kernel);
        self.phase.go(Event::Open);
        self.holders.begin(holder);
    }
}
