//! The memory itself: one mapping, made at the first connection, shared with children that are forked later.

pub use crate::blocked::CONNS;
use crate::pid_namespace;
use crate::record::Conn;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use sidestep_conn::Event;
use sidestep_sys::mem;

/// Most processes of a family that hold connections at once.
pub const FAMILY: usize = 64;
/// Most epoll sets that the processes of a family inherit from each other.
pub const FAMILY_SETS: usize = 4096;

#[repr(C, align(64))]
pub struct Arena {
    /// Head of the free list: index + 1 in the low half, a counter against ABA in the high half.
    free: AtomicU64,
    /// Records from here on have never been used.
    fresh: AtomicU32,
    /// Records of sets from here on have never been used.
    pub fresh_sets: AtomicU32,
    /// Counts the children that were to be forked.
    pub births: AtomicU32,
    /// Process numbers by place (`family`); 0: the place is free, and nothing has its bit.
    pub family: [AtomicU32; FAMILY],
    conns: [Conn; CONNS],
    pub sets: [FamilySet; FAMILY_SETS],
}

/// What the processes of a family tell each other about an epoll set that several of them have. Bitmaps have a bit for
/// each place in the family.
pub struct FamilySet {
    /// Processes that have the set. 0: the record is free.
    pub holders: AtomicU64,
    /// Processes that have waited for the set, or have registered something there.
    pub users: AtomicU64,
    /// Processes that have managed registrations there, which the others do not know.
    pub managers: AtomicU64,
    /// Processes that have executed another program, which has inherited the set: what that program does with it, nobody tells us.
    pub executed: AtomicU64,
    /// How often a process has become a holder. While that is the same, each bit is still the same process's.
    pub entries: AtomicU32,
    /// 1: several processes have used the set. Nothing is managed there from now on.
    pub is_shared: AtomicU32,
}

static ARENA: AtomicPtr<Arena> = AtomicPtr::new(core::ptr::null_mut());

/// What each process has of a connection for itself.
pub struct Local {
    /// How many descriptors of this process stand for the connection.
    pub refs: AtomicU32,
    /// One of these descriptors.
    pub fd: AtomicU32,
    /// 1: the program has closed the connection while a call was blocked on it. The connection lives on under a descriptor of
    /// the library's own.
    pub orphan: AtomicU32,
    /// The record's generation while it is this connection's. A forked child has it of its parent.
    pub generation: AtomicU32,
    /// The record's generation when this process, about to exec(), left the connection to its other holders; 0: it did not.
    pub left_in: AtomicU32,
    /// Time (ticks) until which a relative is assumed to hold the connection, too.
    pub held_until: AtomicU64,
}

static LOCAL: [Local; CONNS] = [const {
    Local {
        refs: AtomicU32::new(0),
        fd: AtomicU32::new(0),
        orphan: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        left_in: AtomicU32::new(0),
        held_until: AtomicU64::new(0),
    }
}; CONNS];

pub fn local(index: u32) -> &'static Local {
    &LOCAL[index as usize]
}

/// Whether this process has, or has inherited, an arena.
pub fn exists() -> bool {
    !ARENA.load(Acquire).is_null()
}

pub fn arena() -> Option<&'static Arena> {
    let mut p = ARENA.load(Acquire);
    if p.is_null() {
        p = mem::anonymous(size_of::<Arena>(), true).ok()?.cast();
        // SYNC arena: zero bytes are a valid, empty arena.
        match ARENA.compare_exchange(core::ptr::null_mut(), p, AcqRel, Acquire) {
            Ok(_) => pid_namespace::begin_family(),
            Err(other) => p = other, // another thread was first; our mapping has never been touched and costs nothing
        }
    }
    // SAFETY: a live mapping of that size that is never unmapped; all fields are atomics or have their own
    // locks, and zero is a valid value of each.
    Some(unsafe { &*p })
}

/// In a child that leaves its parent's family: a new arena, with free records only. The old one stays mapped.
pub fn begin_anew() {
    if exists() {
        let fresh = mem::anonymous(size_of::<Arena>(), true).map_or(core::ptr::null_mut(), |p| p.cast());
        ARENA.store(fresh, Release);
        pid_namespace::begin_family();
    }
}

/// The record with this index, which must come from [`alloc`](super::alloc) or from an entry of the descriptor table.
#[inline]
pub fn conn(index: u32) -> &'static Conn {
    let p = ARENA.load(Acquire);
    // SAFETY: an index exists only after the arena does; see `arena`.
    unsafe { &(*p).conns[index as usize & (CONNS - 1)] }
}

impl Arena {
    /// All records that have ever been used, by their indices.
    pub fn conns(&self) -> &[Conn] {
        &self.conns[..(self.fresh.load(Acquire) as usize).min(CONNS)]
    }

    /// All records of sets that have ever been used.
    pub fn sets(&self) -> &[FamilySet] {
        &self.sets[..(self.fresh_sets.load(Acquire) as usize).min(FAMILY_SETS)]
    }

    /// A record that nobody holds.
    pub fn take_free(&self) -> Option<u32> {
        self.pop().or_else(|| self.take_fresh())
    }

    /// A record that has been given back.
    pub fn pop(&self) -> Option<u32> {
        loop {
            let head = self.free.load(Acquire);
            let index = (head as u32).checked_sub(1)?;
            let next = u64::from(self.conns[index as usize].next_free.load(Relaxed));
            let tagged = (head >> 32).wrapping_add(1) << 32 | next;
            if self.free.compare_exchange(head, tagged, AcqRel, Relaxed).is_ok() {
                return Some(index);
            }
        }
    }

    fn take_fresh(&self) -> Option<u32> {
        let fresh = self.fresh.fetch_add(1, AcqRel);
        if (fresh as usize) < CONNS {
            return Some(fresh);
        }
        self.fresh.store(CONNS as u32, Release);
        None
    }

    /// Ends a record and gives it back. Only the caller that has removed the last holder's bit may do that.
    pub fn end(&self, index: u32) {
        let c = &self.conns[index as usize];
        c.phase.go(Event::Close); // no effect if the last holder has closed the connection
        if c.phase.go(Event::Free).is_none() {
            return;
        }
        loop {
            let head = self.free.load(Acquire);
            c.next_free.store(head as u32, Relaxed);
            let tagged = (head >> 32).wrapping_add(1) << 32 | u64::from(index + 1);
            if self.free.compare_exchange(head, tagged, AcqRel, Relaxed).is_ok() {
                return;
            }
        }
    }
}
