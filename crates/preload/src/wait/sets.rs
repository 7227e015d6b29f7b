//! Records of the program's epoll sets: what is registered in each, and what is ready.
//!
//! A set stays a kernel set. The registration of an upgraded connection is *managed*: in the kernel's set it is edge-triggered
//! and has a tag of ours. The program's events and data are kept here.

use super::shown::Shown;
use crate::arena::Held;
use crate::critical::Lock;
use crate::spin::Spin;
use crate::{generation, thread, waiter};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*, fence};
use libc::epoll_event;
use sidestep_ready::{Node, Nodes, Pace, Ready};
use sidestep_sys::lock::Taken;
use sidestep_sys::{arch, mem};

/// Sets that can be followed at once.
pub const SETS: usize = 512;
/// Descriptors from here on are not followed in sets.
pub const MAX_REG: usize = crate::fdtable::MAX_FD;

/// One registration. All zero: there is none.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Reg {
    /// The program's data.
    pub data: u64,
    pub events: u32,
    /// Bits of [`reg`].
    pub state: u32,
    /// The connection, if managed.
    pub conn: u32,
    /// [`Conn::spaces`](crate::record::Conn::spaces) at the last look.
    pub spaces: u32,
    /// Tail of the ring at the last look.
    pub tail: u64,
    /// Ends ([`super::readiness::ENDS`]) that the kernel's last event of the registration named. If a further event names no
    /// others, it concerns bytes only.
    pub ends: u32,
    node: Node,
}

impl Reg {
    /// The program has it in the set.
    #[inline]
    pub fn is_present(&self) -> bool {
        self.state & reg::PRESENT != 0
    }

    /// The library reports its events. If it is not present, it is set aside.
    #[inline]
    pub fn is_managed(&self) -> bool {
        self.state & reg::MANAGED != 0
    }

    /// The program has it in the set, and the kernel reports its events.
    pub fn is_native(&self) -> bool {
        self.is_present() && !self.is_managed()
    }

    /// It is in the set's list of those to be looked at.
    pub fn is_listed(&self) -> bool {
        self.node.is_listed()
    }

    /// The library reports its events, and the program waits for it.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.is_present() && self.is_managed() && self.state & reg::DISARMED == 0
    }
}

/// Bits of [`Reg::state`].
pub mod reg {
    /// The program has it in the set.
    pub const PRESENT: u32 = 1;
    /// The kernel's set has it with our tag. Without `PRESENT`: set aside.
    pub const MANAGED: u32 = 2;
    /// An edge-triggered registration reports what is ready now, whether changed or not.
    pub const EDGE: u32 = 4;
    /// EPOLLONESHOT has fired.
    pub const DISARMED: u32 = 8;
    /// It was taken over from the kernel, and has not been looked at since.
    pub const FRESH: u32 = 16;
    /// The kernel was the first to have news of it.
    pub const BY_KERNEL: u32 = 32;
}

/// The registrations of a set, by descriptor.
#[derive(Clone, Copy)]
pub struct Regs(*mut Reg);

/// State of a set under its lock.
pub struct Inner {
    pub regs: Regs,
    /// Every descriptor that has ever been registered is below this number.
    pub top: i32,
    /// Registrations with news, in the order of reporting.
    pub ready: Ready,
    pub pace: Pace,
    /// Time (ticks) when news was last taken from the doorbells: news that is there now came later.
    pub taken: u64,
}

pub struct Set {
    /// Number of descriptors of this process that stand for the set; 0: the record is free.
    pub refs: AtomicU32,
    pub fd: AtomicI32,
    /// Counts the sets that have used this record.
    pub life: AtomicU32,
    /// `generation::get` when the set became a waiter: a forked child must not use that waiter.
    pub generation: AtomicU32,
    /// `generation::get` + 1 of the process that has last begun to use the set; 0: none has.
    pub used_in: AtomicU32,
    /// Number of its record that forked relatives share (`arena::family_set`); 0: none.
    pub family: AtomicU32,
    /// Several processes use the set, so nothing in it is managed.
    pub is_shared: AtomicBool,
    /// What has been found out lately about relatives that have the set, too.
    pub held: Held,
    /// Number of the waiter. -1: the set has not been one yet. Below: it was one, as [`Set::give_waiter_up`] says.
    waiter: AtomicI32,
    /// The set has been a waiter, in this process or in a parent: events with our tags may come.
    pub had_waiter: AtomicBool,
    /// The set is watched in another set or in poll(2), so news must make it readable.
    pub nested: AtomicBool,
    pub shown: Shown,
    /// Nothing is managed in the set, for good.
    pub is_kernels: AtomicBool,
    /// As `is_kernels`, and all that was managed has been given back: nothing in the kernel's set has a tag of ours.
    pub is_given_back: AtomicBool,
    /// A wait for the set has been seen, and no forked relative has the set.
    pub is_waited_for: AtomicBool,
    /// Number of the thread that is taking over the registrations, at the first wait; 0: none.
    pub changer: AtomicU32,
    /// The set has had unmanaged registrations that are level-triggered, and others that are edge-triggered or one-shot.
    pub has_level: AtomicBool,
    pub has_edge: AtomicBool,
    /// Time (ticks) when the kernel was last asked.
    pub asked: AtomicU64,
    /// Threads in a native wait, because the set was no waiter when they began.
    pub natives: AtomicU32,
    /// Number of waits so far.
    pub calls: AtomicU32,
    pub spin: Spin,
    /// Memory of the registrations, kept from one use of the record to the next.
    memory: AtomicPtr<Reg>,
    /// Buffer for many kernel events, kept as `memory` is; and whether a wait uses the buffer.
    pub entries: AtomicPtr<epoll_event>,
    pub entries_used: AtomicBool,
    lock: Lock,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only handed out under `lock`; all else is atomic.
unsafe impl Sync for Set {}

static SET: [Set; SETS] = [const {
    Set {
        refs: AtomicU32::new(0),
        fd: AtomicI32::new(-1),
        life: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        used_in: AtomicU32::new(0),
        family: AtomicU32::new(0),
        is_shared: AtomicBool::new(false),
        held: Held::new(),
        waiter: AtomicI32::new(-1),
        had_waiter: AtomicBool::new(false),
        nested: AtomicBool::new(false),
        shown: Shown::new(),
        is_kernels: AtomicBool::new(false),
        is_given_back: AtomicBool::new(false),
        is_waited_for: AtomicBool::new(false),
        changer: AtomicU32::new(0),
        has_level: AtomicBool::new(false),
        has_edge: AtomicBool::new(false),
        asked: AtomicU64::new(0),
        natives: AtomicU32::new(0),
        calls: AtomicU32::new(0),
        spin: Spin::new(),
        memory: AtomicPtr::new(core::ptr::null_mut()),
        entries: AtomicPtr::new(core::ptr::null_mut()),
        entries_used: AtomicBool::new(false),
        lock: Lock::new(),
        inner: UnsafeCell::new(Inner {
            regs: Regs(core::ptr::null_mut()),
            top: 0,
            ready: Ready::new(),
            pace: Pace::new(),
            taken: 0,
        }),
    }
}; SETS];

static HIGH: AtomicU32 = AtomicU32::new(0);

/// [`Set::waiter`] after waiter 0 was given up; one less for each further number.
const GIVEN_UP: i32 = -2;

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
    let (s, bytes) = (get(index), MAX_REG * size_of::<Reg>());
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
    s.with(|inner| *inner = Inner { regs: Regs(memory), top: 0, ready: Ready::new(), pace: Pace::new(), taken: 0 });
    s.fd.store(fd, Relaxed);
    s.life.fetch_add(1, Release);
    s.waiter.store(-1, Relaxed);
    s.held.forget();
    [&s.used_in, &s.family, &s.changer].into_iter().for_each(|word| word.store(0, Relaxed));
    let lives = [&s.had_waiter, &s.nested, &s.is_kernels, &s.is_waited_for, &s.is_shared];
    // Not `entries_used`: a thread that still waits in the closed set has the buffer, and gives it back itself.
    let flags = lives.into_iter().chain([&s.is_given_back, &s.has_level, &s.has_edge]);
    flags.for_each(|flag| flag.store(false, Relaxed));
    HIGH.fetch_max(index + 1, AcqRel);
    Some(index)
}

/// In a forked child. A thread of the parent may have been making or ending a set.
pub fn unlock_all() {
    let was_used = |i: &u32| *i < HIGH.load(Acquire) || get(*i).refs.load(Acquire) != 0;
    (0..SETS as u32).take_while(was_used).for_each(|i| get(i).reset_in_child());
}

impl Set {
    /// What threads of the parent held or did has nobody here.
    pub fn reset_in_child(&self) {
        self.lock.reset_in_child();
        self.shown.reset_in_child();
        [&self.changer, &self.natives].into_iter().for_each(|word| word.store(0, Relaxed));
    }

    /// A native wait is over. A forked child may end one that was counted in its parent.
    pub fn end_native(&self) {
        let _ = self.natives.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }

    /// Runs `work` on the registrations, under the lock. None: this handler has interrupted a holder of the lock.
    #[inline]
    pub fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        if self.lock.lock(thread::tid()) == Taken::Reentered {
            return None; // to this handler the set has nothing ready
        }
        // SAFETY: under the lock nobody else has a reference.
        let result = work(unsafe { &mut *self.inner.get() });
        self.lock.unlock();
        Some(result)
    }

    /// Whether `fd` has a registration that passes the test.
    pub fn has(&self, fd: i32, test: impl Fn(&Reg) -> bool) -> bool {
        self.with(|inner| inner.reg(fd).is_some_and(|r| test(r))) == Some(true)
    }

    #[inline]
    pub fn waiter(&self) -> Option<u32> {
        let p = self.waiter.load(Acquire);
        (p >= 0).then_some(p as u32)
    }

    pub fn set_waiter(&self, waiter: u32) {
        self.generation.store(generation::get(), Relaxed);
        self.had_waiter.store(true, Relaxed);
        self.shown.forget();
        self.waiter.store(waiter as i32, SeqCst);
        // SYNC natives
        fence(SeqCst);
    }

    /// The doorbell belongs to another process, or could not be added.
    pub fn set_no_waiter(&self) {
        self.waiter.store(-1, Release);
    }

    /// The set is never a waiter again. The waiter stays taken until the set is closed: a thread may still sleep there, and
    /// must not take another set's news when it wakes.
    pub fn give_waiter_up(&self) {
        let taken = |p| (p >= 0).then_some(GIVEN_UP - p);
        let _ = self.waiter.fetch_update(AcqRel, Acquire, taken);
    }

    pub fn gave_waiter_up(&self) -> bool {
        self.waiter.load(Acquire) <= GIVEN_UP
    }

    /// Whether the set became a waiter in this process, and not in a parent that has forked it since.
    pub fn has_own_waiter(&self) -> bool {
        self.generation.load(Relaxed) == generation::get()
    }

    /// Releases the waiter: the last descriptor of the set is being closed, or the kernel takes the set over.
    pub fn destroy(&self) {
        match self.waiter.load(Acquire) {
            _ if !self.has_own_waiter() => {} // the number may be another waiter's of this process
            p @ 0.. => waiter::release(p as u32),
            p @ ..=GIVEN_UP => waiter::release((GIVEN_UP - p) as u32),
            _ => {}
        }
        self.waiter.store(-1, Release);
    }
}

impl Regs {
    /// The registration of `fd`. None: the descriptor is too large to be followed.
    #[inline]
    pub fn get(&mut self, fd: i32) -> Option<&mut Reg> {
        if (fd as u32 as usize) < MAX_REG && !self.0.is_null() {
            // SAFETY: inside the mapping made in `create`, which lives as long as the record; the lock is held.
            Some(unsafe { &mut *self.0.add(fd as usize) })
        } else {
            None
        }
    }
}

impl Nodes for Regs {
    #[inline]
    fn node(&mut self, number: u32) -> Option<&mut Node> {
        self.get(number as i32).map(|r| &mut r.node)
    }
}

impl Inner {
    #[inline]
    pub fn reg(&mut self, fd: i32) -> Option<&mut Reg> {
        self.regs.get(fd)
    }

    /// A managed registration may have had news since `ticks`. True: the doorbell must ring, so that the kernel's list keeps
    /// the order of the news.
    #[inline]
    pub fn hear(&mut self, fd: i32, ticks: u64) -> bool {
        self.reg(fd).is_some_and(|r| r.is_managed()) && self.ready.list.hear(&mut self.regs, fd as u32, ticks)
    }

    /// Called after the last [`Inner::hear`], before the lock is released.
    #[inline]
    pub fn settle(&mut self) {
        self.ready.list.settle(&mut self.regs);
    }

    /// The program is to get what holds now, changed or not. Result as of [`Inner::hear`].
    pub fn hear_edge(&mut self, fd: i32) -> bool {
        if let Some(r) = self.reg(fd).filter(|r| r.is_managed()) {
            r.state |= reg::EDGE;
        }
        self.hear_at(fd, arch::ticks())
    }

    /// [`Inner::hear`] and [`Inner::settle`], for news of the time `ticks`, clamped to the time since the last look.
    pub fn hear_since(&mut self, fd: i32, ticks: u64) -> bool {
        let now = arch::ticks();
        self.hear_at(fd, ticks.clamp(self.taken.min(now), now))
    }

    fn hear_at(&mut self, fd: i32, ticks: u64) -> bool {
        let is_first = self.hear(fd, ticks);
        self.settle();
        is_first
    }

    /// The program adds or changes the registration of `fd`.
    pub fn register(&mut self, fd: i32, (events, data): (u32, u64), state: u32) -> Option<&mut Reg> {
        let r = self.regs.get(fd)?;
        self.top = self.top.max(fd + 1);
        (r.events, r.data, r.state) = (events, data, state);
        Some(r)
    }

    /// Removes the registration of `fd`. It may stay in the list, where it is skipped.
    pub fn clear(&mut self, fd: i32) {
        if let Some(r) = self.reg(fd) {
            *r = Reg { node: r.node, ..Reg::default() };
        }
    }
}
