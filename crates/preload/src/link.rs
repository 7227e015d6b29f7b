//! The links of this process: memory shared with one peer process each, and that peer's doorbells.

use crate::fdtable::{self, Kind};
use crate::record::flag;
use crate::{arena, broker, generation, thread};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};
pub use sidestep_abi::link::LINKS;
use sidestep_abi::link::{self as layout, Doorbell, Header, PLACES, SLOTS, SideArea, Slot};
use sidestep_abi::msg::Msg;
use sidestep_ring::{Half, doorbell, header};
use sidestep_sys::lock::Taken;
use sidestep_sys::reserved::Reserved;
use sidestep_sys::{Errno, Result, arch, fd, mem};

/// One link. The entry is reused, never moved.
pub struct Link {
    /// 1: in use.
    used: AtomicU32,
    /// `generation::get` of the process that it belongs to.
    generation: AtomicU32,
    id: AtomicU32,
    side: AtomicU32,
    /// Which connection to the broker (they are counted) gave it.
    era: AtomicU32,
    ring_size: AtomicU32,
    peer_pid: AtomicU32,
    /// Its addresses are kept when the link is given up, for the next one.
    memory: Reserved,
    peer_bells: [AtomicI32; PLACES],
    /// Connection of each slot, index + 1.
    conns: [AtomicU32; SLOTS],
    /// Slots that are given back, of which the broker has not been told.
    owed: [AtomicU64; SLOTS / 64],
}

static TABLE: [Link; LINKS] = [const {
    Link {
        used: AtomicU32::new(0),
        generation: AtomicU32::new(0),
        id: AtomicU32::new(0),
        side: AtomicU32::new(0),
        era: AtomicU32::new(0),
        ring_size: AtomicU32::new(0),
        peer_pid: AtomicU32::new(0),
        memory: Reserved::none(),
        peer_bells: [const { AtomicI32::new(-1) }; PLACES],
        conns: [const { AtomicU32::new(0) }; SLOTS],
        owed: [const { AtomicU64::new(0) }; SLOTS / 64],
    }
}; LINKS];

/// Entries from here on have never been used.
static HIGH: AtomicU32 = AtomicU32::new(0);

/// All links of this process. What a forked child inherits it may read and write, but the doorbells of those
/// links are its parent's.
#[inline]
pub fn all() -> impl Iterator<Item = &'static Link> {
    let mine = |l: &&Link| l.used.load(Acquire) != 0 && l.generation.load(Relaxed) == generation::get();
    TABLE[..HIGH.load(Acquire) as usize].iter().filter(mine)
}

#[inline]
pub fn get(index: u32) -> &'static Link {
    &TABLE[index as usize % LINKS]
}

/// The link that the present broker calls `id`, on this side of it.
pub fn find(id: u32, side: u32, era: u32) -> Option<u32> {
    (0..HIGH.load(Acquire)).find(|i| {
        let l = get(*i);
        l.used.load(Acquire) != 0
            && l.id.load(Relaxed) == id
            && l.side.load(Relaxed) == side
            && l.era.load(Relaxed) == era
    })
}

/// Maps a new link. The descriptor stays the caller's. Callers exclude each other (broker lock).
pub fn add(memory: i32, msg: &Msg, era: u32) -> Result<()> {
    let (id, side, ring_size) = (msg.link, msg.side, msg.arg);
    let size = usize::try_from(ring_size).map_err(|_| Errno(libc::EINVAL))?;
    if !size.is_power_of_two() || !sidestep_abi::env::RING_SIZES.contains(&(size as u32)) || side > 1 {
        return Err(Errno(libc::EINVAL));
    }
    let len = layout::link_size(size);
    mem::check_sealed(memory, len)?;
    let (index, link) = vacant(len)?;
    link.memory.map(memory, len)?;
    if !header::fits(link.header()) {
        return Err(Errno(libc::EPROTO));
    }
    link.id.store(id, Relaxed);
    link.side.store(side, Relaxed);
    link.era.store(era, Relaxed);
    link.ring_size.store(size as u32, Release);
    link.peer_pid.store(msg.arg2 as u32, Relaxed);
    link.generation.store(generation::get(), Relaxed);
    link.used.store(1, Release);
    HIGH.fetch_max(index + 1, AcqRel);
    Ok(())
}

/// A free entry, best one whose addresses have the right size.
fn vacant(len: usize) -> Result<(u32, &'static Link)> {
    let free = (0..LINKS as u32).filter(|i| get(*i).used.load(Acquire) == 0);
    let index = free.min_by_key(|i| get(*i).memory.rank(len)).ok_or(Errno(libc::ENOSPC))?;
    Ok((index, get(index)))
}

impl Link {
    #[inline]
    fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: `add` has checked that the sealed mapping is as long as the layout says; offsets below come
        // from the layout; the mapping is never unmapped. All fields of T are atomics, so a peer's writes are
        // no data race, and every bit pattern is a value.
        unsafe { &*self.memory.base().add(offset).cast::<T>() }
    }

    fn header(&self) -> &Header {
        self.at(0)
    }

    #[inline]
    fn area(&self, side: usize) -> &SideArea {
        self.at(layout::side_at(side))
    }

    #[inline]
    pub fn my_side(&self) -> usize {
        (self.side.load(Relaxed) & 1) as usize
    }

    /// Our doorbell for `place`, as this link's peer sees it.
    #[inline]
    pub fn my_bell(&self, place: u32) -> &Doorbell {
        &self.area(self.my_side()).doorbells[place as usize % PLACES]
    }

    pub fn slot(&self, slot: usize) -> *mut Slot {
        core::ptr::from_ref(self.words(slot)).cast_mut()
    }

    #[inline]
    fn words(&self, slot: usize) -> &Slot {
        self.at::<Slot>(layout::slot_at(slot % SLOTS))
    }

    pub fn ring(&self, slot: usize, side: usize) -> (*mut u8, usize) {
        // Before the addresses: they never hold less than this says.
        let size = self.ring_size.load(Acquire) as usize;
        let at = layout::ring_at(size, slot % SLOTS, side);
        // SAFETY: inside the mapping, see `at`.
        (unsafe { self.memory.base().add(at) }, size)
    }

    /// Whether the peer can ring at our `place`.
    #[inline]
    pub fn knows(&self, place: u32) -> bool {
        self.generation.load(Relaxed) == generation::get()
            && doorbell::known(self.area(1 - self.my_side())) & 1 << place != 0
    }

    pub fn conn_at(&self, slot: usize) -> Option<u32> {
        self.conns[slot % SLOTS].load(Acquire).checked_sub(1)
    }

    pub fn set_conn(&self, slot: u32, conn: Option<u32>) {
        self.conns[slot as usize % SLOTS].store(conn.map_or(0, |c| c + 1), Release);
    }

    /// Gives a slot back, now or later.
    pub fn release(&self, slot: u32) {
        if !broker::release(self.id(), slot) {
            let slot = slot as usize % SLOTS;
            self.owed[slot / 64].fetch_or(1 << (slot % 64), AcqRel);
            broker::owe();
        }
    }

    /// False: the broker cannot be told everything yet.
    pub fn tell_owed(&self) -> bool {
        let told = |at: usize, bit| broker::release(self.id(), (at * 64) as u32 + bit);
        self.owed.iter().enumerate().all(|(at, word)| broker::tell_each(word, |bit| told(at, bit)))
    }

    pub fn owe_nothing(&self) {
        self.owed.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// The peer process as the broker numbers it: a hint.
    pub fn peer_pid(&self) -> u32 {
        self.peer_pid.load(Relaxed)
    }

    pub fn id(&self) -> (u32, u32, u32) {
        (self.id.load(Relaxed), self.side.load(Relaxed), self.era.load(Relaxed))
    }

    /// The peer's doorbell `place` has arrived.
    pub fn set_peer_bell(&self, place: u32, eventfd: i32) {
        let place = place as usize % PLACES;
        fdtable::set(eventfd, Kind::Own);
        let old = self.peer_bells[place].swap(eventfd, AcqRel);
        fdtable::drop_own(old);
        doorbell::add_known(self.area(self.my_side()), place as u32);
        // From here on the peer sleeps there until it is rung: what it could not be told before it hears now.
        fd::ring(eventfd);
    }

    /// Rings the doorbells in `bells` for `slot`. The news has been published and fenced.
    #[inline]
    pub fn notify(&self, slot: usize, mut bells: u64) {
        let stamp = || Half::of(self.words(slot), self.my_side(), 0).stamp(arch::ticks());
        if bells == 0 {
            stamp(); // whoever begins to wait for it soon looks at this
        }
        let area = self.area(1 - self.my_side());
        while bells != 0 {
            let place = bells.trailing_zeros() as usize;
            bells &= bells - 1;
            if doorbell::ring(&area.doorbells[place], slot, stamp) {
                self.wake(place, slot);
            }
        }
    }

    #[cold]
    fn wake(&self, place: usize, slot: usize) {
        // Without the doorbell (-1) the peer does not sleep for long.
        let eventfd = self.peer_bells[place].load(Acquire);
        if eventfd >= 0 && fd::ring(eventfd) {
            return;
        }
        // Not ours to ring yet, or it could not be: the next one to ring tries again, `set_peer_bell` at the latest.
        doorbell::rearm(&self.area(1 - self.my_side()).doorbells[place]);
        if eventfd < 0 {
            return;
        }
        if let Some(index) = self.conn_at(slot) {
            arena::conn(index).raise(flag::UNHEARD);
        }
    }

    /// Rings every doorbell of the peer that we hold.
    pub fn notify_all(&self, slot: usize) {
        self.notify(slot, doorbell::known(self.area(self.my_side())));
    }
}

/// The peer is gone and all slots are released.
pub fn remove(index: u32) {
    let link = get(index);
    if link.used.swap(0, AcqRel) == 0 {
        return;
    }
    for bell in &link.peer_bells {
        fdtable::drop_own(bell.swap(-1, AcqRel));
    }
    link.conns.iter().for_each(|c| c.store(0, Relaxed));
    link.owe_nothing();
    link.memory.clear();
}

/// Gives up links that carry nothing any more, of brokers for which `of_era` is true. Callers exclude each other (broker lock).
pub fn remove_idle_ones(of_era: impl Fn(u32) -> bool) {
    for index in 0..HIGH.load(Acquire) {
        if of_era(get(index).era.load(Relaxed)) {
            remove_idle(index);
        }
    }
}

/// Gives a link up if it carries nothing any more. Callers exclude each other (broker lock).
pub fn remove_idle(index: u32) {
    if get(index).conns.iter().all(|c| c.load(Relaxed) == 0) {
        remove(index);
    }
}

/// A slot of this link has been given back. Of a link whose broker is gone nobody will say that it is done with: it goes
/// with its last slot.
pub fn collect(index: u32) {
    let is_orphaned = broker::SOCKET.load(Relaxed) < 0 || get(index).id().2 != broker::link_era();
    // Reentered: a signal handler while the broker is heard; the link goes when the next one is joined.
    if is_orphaned && broker::LOCK.lock(thread::tid()) != Taken::Reentered {
        remove_idle(index);
        broker::LOCK.unlock();
    }
}
