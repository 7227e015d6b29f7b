//! Our records of the program's epoll sets: what is registered where, and which of it is ready.
//!
//! The set stays the kernel's. A connection that has been upgraded is *managed*: its kernel registration is
//! edge-triggered and carries a tag of ours, and what the program asked for is kept here.

use super::spin::Spin;
use crate::{place, thread};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*, fence};
use sidestep_sys::lock::{Lock, Taken};
use sidestep_sys::mem;

/// Sets that can be followed at once.
pub const SETS: usize = 512;
/// Descriptors from here on are not followed in sets.
pub const MAX_REG: usize = crate::fdtable::MAX_FD;

/// One registration. All zero: none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Reg {
    /// As the program gave it.
    pub data: u64,
    pub events: u32,
    /// Bits of [`reg`].
    pub state: u32,
    /// Connection, if managed.
    pub conn: u32,
    /// Next in the ready queue: descriptor + 1.
    next: u32,
}

impl Reg {
    /// In the set, for the program.
    #[inline]
    pub fn is_present(&self) -> bool {
        self.state & reg::PRESENT != 0
    }

    /// Ours to report; if it is not present, it is parked.
    #[inline]
    pub fn is_managed(&self) -> bool {
        self.state & reg::MANAGED != 0
    }

    /// In the set, watched by the kernel in its own way.
    pub fn is_native(&self) -> bool {
        self.is_present() && !self.is_managed()
    }

    /// Ours to report, and the program waits for it.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.is_present() && self.is_managed() && self.state & reg::DISARMED == 0
    }
}

/// Bits of [`Reg::state`].
pub mod reg {
    /// In the set, for the program.
    pub const PRESENT: u32 = 1;
    /// In the kernel's set in our way. Without `PRESENT`: parked.
    pub const MANAGED: u32 = 2;
    pub const QUEUED: u32 = 4;
    /// EPOLLONESHOT has fired.
    pub const DISARMED: u32 = 8;
}

/// Under the lock of a set.
pub struct Inner {
    regs: *mut Reg,
    /// The ready queue: descriptors + 1.
    first: u32,
    last: u32,
    pub queued: u32,
}

pub struct Set {
    /// Descriptors of ours that stand for the set; 0: free record.
    pub refs: AtomicU32,
    pub fd: AtomicI32,
    /// `fork::generation` when the place was taken: a forked child must not use it.
    pub generation: AtomicU32,
    /// -1: no managed registration has ever been made.
    place: AtomicI32,
    /// It has had a place, in this process or in a parent: events of ours may be in it.
    pub had_place: AtomicBool,
    /// Watched from outside (in another set, or in poll): must become readable by itself.
    pub nested: AtomicBool,
    /// Such a set's doorbell has been rung for what is ready in it, and neither hushed nor heard inside since.
    pub shown: AtomicBool,
    /// The program's own data looks like our tags: nothing is managed here.
    pub clash: AtomicBool,
    /// Ticks when the kernel was last asked.
    pub asked: AtomicU64,
    /// The last wait with room for one event gave it to the kernel.
    pub kernel_had_turn: AtomicBool,
    /// Threads that wait in the kernel's way, because there was no place when they began.
    pub natives: AtomicU32,
    /// Waits so far.
    pub calls: AtomicU32,
    pub spin: Spin,
    /// Kept from one use of the record to the next.
    memory: AtomicPtr<Reg>,
    lock: Lock,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only handed out under `lock`; all else is atomic.
unsafe impl Sync for Set {}

static SET: [Set; SETS] = [const {
    Set {
        refs: AtomicU32::new(0),
        fd: AtomicI32::new(-1),
        generation: AtomicU32::new(0),
        place: AtomicI32::new(-1),
        had_place: AtomicBool::new(false),
        nested: AtomicBool::new(false),
        shown: AtomicBool::new(false),
        clash: AtomicBool::new(false),
        asked: AtomicU64::new(0),
        kernel_had_turn: AtomicBool::new(false),
        natives: AtomicU32::new(0),
        calls: AtomicU32::new(0),
        spin: Spin::new(),
        memory: AtomicPtr::new(core::ptr::null_mut()),
        lock: Lock::new(),
        inner: UnsafeCell::new(Inner { regs: core::ptr::null_mut(), first: 0, last: 0, queued: 0 }),
    }
}; SETS];

static HIGH: AtomicU32 = AtomicU32::new(0);

#[inline]
pub fn get(index: u32) -> &'static Set {
    &SET[index as usize % SETS]
}

/// All sets in use.
pub fn all() -> impl Iterator<Item = (u32, &'static Set)> {
    (0..HIGH.load(Acquire)).map(|i| (i, get(i))).filter(|(_, s)| s.refs.load(Acquire) != 0)
}

/// A record for a new set.
pub fn create(fd: i32) -> Option<u32> {
    let index = (0..SETS as u32).find(|i| get(*i).refs.compare_exchange(0, 1, AcqRel, Relaxed).is_ok())?;
    let s = get(index);
    let bytes = MAX_REG * size_of::<Reg>();
    let memory = match s.memory.load(Relaxed) {
        old if !old.is_null() => {
            // SAFETY: the record's own mapping, of exactly that size, used by no one now.
            let _ = unsafe { mem::anonymous_over(old.cast(), bytes) };
            old
        }
        _ => mem::anonymous(bytes, false).map_or(core::ptr::null_mut(), |p| p.cast()),
    };
    if memory.is_null() {
        s.refs.store(0, Release);
        return None;
    }
    s.memory.store(memory, Relaxed);
    s.with(|inner| *inner = Inner { regs: memory, first: 0, last: 0, queued: 0 });
    s.fd.store(fd, Relaxed);
    s.place.store(-1, Relaxed);
    s.had_place.store(false, Relaxed);
    s.nested.store(false, Relaxed);
    s.clash.store(false, Relaxed);
    HIGH.fetch_max(index + 1, AcqRel);
    Some(index)
}

/// In a forked child: locks that threads of the parent held at that moment have no owner here.
pub fn unlock_all() {
    for (_, s) in all() {
        if s.lock.is_taken() {
            s.lock.unlock();
        }
    }
}

impl Set {
    /// Works on the registrations, alone.
    #[inline]
    pub fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        if self.lock.lock(thread::tid()) == Taken::Reentered {
            return None; // a signal handler inside our own critical section: it sees nothing ready
        }
        // SAFETY: under the lock nobody else has a reference.
        let result = work(unsafe { &mut *self.inner.get() });
        self.lock.unlock();
        Some(result)
    }

    /// Whether there is a registration of `fd` that passes the test.
    pub fn has(&self, fd: i32, test: impl Fn(&Reg) -> bool) -> bool {
        self.with(|inner| inner.reg(fd).is_some_and(|r| test(r))) == Some(true)
    }

    #[inline]
    pub fn place(&self) -> Option<u32> {
        let p = self.place.load(Acquire);
        (p >= 0).then_some(p as u32)
    }

    pub fn set_place(&self, place: u32) {
        self.generation.store(crate::fork::generation(), Relaxed);
        self.had_place.store(true, Relaxed);
        self.shown.store(false, Relaxed);
        self.place.store(place as i32, SeqCst);
        // SYNC natives
        fence(SeqCst);
    }

    /// The doorbell belongs to another process.
    pub fn set_no_place(&self) {
        self.place.store(-1, Release);
    }

    /// Gives the record back; the last descriptor of the set is being closed.
    pub fn destroy(&self) {
        if let Some(p) = self.place() {
            place::release(p);
        }
        self.place.store(-1, Release);
    }
}

impl Inner {
    /// The registration of `fd`. None: not a number that is followed.
    #[inline]
    pub fn reg(&mut self, fd: i32) -> Option<&mut Reg> {
        if (fd as u32 as usize) < MAX_REG && !self.regs.is_null() {
            // SAFETY: inside the mapping made in `create`, which lives as long as the record.
            Some(unsafe { &mut *self.regs.add(fd as usize) })
        } else {
            None
        }
    }

    /// Puts a managed registration into the ready queue, to be looked at.
    #[inline]
    pub fn queue(&mut self, fd: i32) {
        let Some(r) = self.reg(fd) else { return };
        if !r.is_managed() || r.state & reg::QUEUED != 0 {
            return;
        }
        r.state |= reg::QUEUED;
        r.next = 0;
        self.queued += 1;
        let link = fd as u32 + 1;
        match self.last {
            0 => self.first = link,
            last => {
                if let Some(l) = self.reg(last as i32 - 1) {
                    l.next = link;
                }
            }
        }
        self.last = link;
    }

    /// Takes the first of the queue.
    #[inline]
    pub fn pop(&mut self) -> Option<i32> {
        let fd = self.first.checked_sub(1)? as i32;
        let r = self.reg(fd)?;
        r.state &= !reg::QUEUED;
        let next = r.next;
        self.first = next;
        if next == 0 {
            self.last = 0;
        }
        self.queued -= 1;
        Some(fd)
    }

    /// Forgets the registration of `fd`. It may stay in the queue, where it will be passed over.
    pub fn clear(&mut self, fd: i32) {
        if let Some(r) = self.reg(fd) {
            r.state &= reg::QUEUED;
        }
    }
}
