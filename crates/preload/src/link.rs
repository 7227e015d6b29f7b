//! The links of this process: memory that is shared with one peer process each, and that peer's doorbells.

use crate::fdtable::{self, Kind};
use crate::record::flag;
use crate::{arena, broker, generation, thread};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};
pub use sidestep_abi::link::LINKS;
use sidestep_abi::link::{self as layout, Doorbell, Header, PLACES, SLOTS, SideArea, Slot};
use sidestep_abi::msg::Msg;
use sidestep_ring::{Half, doorbell, header, slot};
use sidestep_sys::lock::Taken;
use sidestep_sys::reserved::Reserved;
use sidestep_sys::{Errno, Result, arch, fd, mem};

/// One link. An entry may be reused for another link, but never moves.
pub struct Link {
    /// 1: in use.
    used: AtomicU32,
    /// `generation::get` of the process that joined the link.
    generation: AtomicU32,
    id: AtomicU32,
    side: AtomicU32,
    /// The membership in which the link was received (memberships are counted).
    era: AtomicU32,
    ring_size: AtomicU32,
    peer_pid: AtomicU32,
    /// 1: the peer is the stack.
    is_stacks: AtomicU32,
    /// Mapping of the link. When the link is given up, its addresses stay reserved for the next link of this entry.
    memory: Reserved,
    peer_bells: [AtomicI32; PLACES],
    /// Connection of each slot, index + 1.
    conns: [AtomicU32; SLOTS],
    /// Slots that were given back, but not yet reported to the broker.
    pending_releases: [AtomicU64; SLOTS / 64],
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
        is_stacks: AtomicU32::new(0),
        memory: Reserved::none(),
        peer_bells: [const { AtomicI32::new(-1) }; PLACES],
        conns: [const { AtomicU32::new(0) }; SLOTS],
        pending_releases: [const { AtomicU64::new(0) }; SLOTS / 64],
    }
}; LINKS];

/// Entries from here on have never been used.
static HIGH: AtomicU32 = AtomicU32::new(0);

/// All links of this process. A forked child may read and write inherited links, but their doorbells are the parent's.
#[inline]
pub fn all() -> impl Iterator<Item = &'static Link> {
    let mine = |l: &&Link| l.used.load(Acquire) != 0 && l.generation.load(Relaxed) == generation::get();
    TABLE[..HIGH.load(Acquire) as usize].iter().filter(mine)
}

#[inline]
pub fn get(index: u32) -> &'static Link {
    &TABLE[index as usize % LINKS]
}

/// The link that the present broker calls `id`, seen from `side`.
pub fn find(id: u32, side: u32, era: u32) -> Option<u32> {
    (0..HIGH.load(Acquire)).find(|i| {
        let l = get(*i);
        l.used.load(Acquire) != 0
            && l.id.load(Relaxed) == id
            && l.side.load(Relaxed) == side
            && l.era.load(Relaxed) == era
    })
}

/// Maps a new link. The caller keeps the descriptor. The caller holds the broker lock.
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
    link.is_stacks.store(msg.place, Relaxed);
    link.generation.store(generation::get(), Relaxed);
    link.used.store(1, Release);
    HIGH.fetch_max(index + 1, AcqRel);
    Ok(())
}

/// A free entry, if possible one whose reserved addresses have the right size.
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
    pub fn my_doorbell(&self, place: u32) -> &Doorbell {
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
        // Loaded before the addresses, which never hold less than this size.
        let size = self.ring_size.load(Acquire) as usize;
        let at = layout::ring_at(size, slot % SLOTS, side);
        // SAFETY: inside the mapping, see `at`.
        (unsafe { self.memory.base().add(at) }, size)
    }

    /// Whether the peer can ring our waiter `place`.
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

    /// Slots that have a connection of this process, and that connection.
    pub fn connections(&self) -> impl Iterator<Item = (usize, u32)> {
        (0..SLOTS).filter_map(move |number| Some((number, self.conn_at(number)?)))
    }

    /// Holds the connection in slot `number` on the kernel, or lets it go, in place of a broker that is gone. Makes both ends look.
    pub fn hold(&self, number: usize, hold: bool) {
        let words = self.words(number);
        slot::set_hold_of_side(words, self.my_side(), hold);
        (0..2).for_each(|writing| Half::of(words, writing, 0).hint_freeze());
        self.notify_all(number);
    }

    /// Gives a slot back, now or later.
    pub fn release(&self, slot: u32) {
        if !broker::release(self.id(), slot) {
            let slot = slot as usize % SLOTS;
            self.pending_releases[slot / 64].fetch_or(1 << (slot % 64), AcqRel);
            broker::owe();
        }
    }

    /// Reports released slots to the broker. False: some are still to be reported.
    pub fn report_releases(&self) -> bool {
        let told = |at: usize, bit| broker::release(self.id(), (at * 64) as u32 + bit);
        self.pending_releases.iter().enumerate().all(|(at, word)| broker::tell_each(word, |bit| told(at, bit)))
    }

    pub fn forget_releases(&self) {
        self.pending_releases.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Process number of the peer, as the broker sees it: only a hint.
    pub fn peer_pid(&self) -> u32 {
        self.peer_pid.load(Relaxed)
    }

    /// Whether the peer is the stack.
    pub fn is_stacks(&self) -> bool {
        self.is_stacks.load(Relaxed) != 0
    }

    pub fn id(&self) -> (u32, u32, u32) {
        (self.id.load(Relaxed), self.side.load(Relaxed), self.era.load(Relaxed))
    }

    /// The doorbell of the peer's waiter `place` has arrived.
    pub fn set_peer_doorbell(&self, place: u32, eventfd: i32) {
        let place = place as usize % PLACES;
        fdtable::set(eventfd, Kind::Own);
        let old = self.peer_bells[place].swap(eventfd, AcqRel);
        fdtable::drop_own(old);
        doorbell::add_known(self.area(self.my_side()), place as u32);
        // From now on that waiter sleeps until it is rung. It may have missed news, so it is rung once now.
        fd::ring(eventfd);
    }

    /// Rings the doorbells in `bells` for `slot`. The caller has published the news, and a full fence.
    #[inline]
    pub fn notify(&self, slot: usize, mut bells: u64) {
        let stamp = || Half::of(self.words(slot), self.my_side(), 0).stamp(arch::ticks());
        if bells == 0 {
            stamp(); // a waiter that registers soon reads this time
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

    /// Marks `slot` for those of our own waiters that `places` names, a bit each, as the peer does. Returns which of them the caller
    /// must ring: their doorbells were armed.
    pub fn mark_own(&self, slot: usize, places: u64) -> u64 {
        let stamp = || Half::of(self.words(slot), 1 - self.my_side(), 0).stamp(arch::ticks());
        let is_named = |place: &u32| places & 1 << *place != 0;
        let was_armed = |place: &u32| doorbell::ring(self.my_doorbell(*place), slot, stamp);
        (0..PLACES as u32).filter(is_named).filter(was_armed).fold(0, |armed, place| armed | 1 << place)
    }

    #[cold]
    fn wake(&self, place: usize, slot: usize) {
        // A waiter of the peer whose eventfd we have not received yet (-1) does not sleep for long.
        let eventfd = self.peer_bells[place].load(Acquire);
        if eventfd >= 0 && fd::ring(eventfd) {
            return;
        }
        // The doorbell has not arrived, or could not be rung. It is armed again, so that the next ring tries again; at the
        // latest `set_peer_doorbell` does.
        doorbell::rearm(&self.area(1 - self.my_side()).doorbells[place]);
        if eventfd < 0 {
            return;
        }
        if let Some(index) = self.conn_at(slot) {
            arena::conn(index).raise(flag::UNHEARD);
        }
    }

    /// Rings every doorbell of the peer that this process has received.
    pub fn notify_all(&self, slot: usize) {
        self.notify(slot, doorbell::known(self.area(self.my_side())));
    }
}

/// Gives the link up: all its slots have been released, and its peer or its broker is gone.
pub fn remove(index: u32) {
    let link = get(index);
    if link.used.swap(0, AcqRel) == 0 {
        return;
    }
    for bell in &link.peer_bells {
        fdtable::drop_own(bell.swap(-1, AcqRel));
    }
    link.conns.iter().for_each(|c| c.store(0, Relaxed));
    link.forget_releases();
    link.memory.clear();
}

/// Gives up all links without connections of those eras for which `of_era` is true. The caller holds the broker lock.
pub fn remove_idle_ones(of_era: impl Fn(u32) -> bool) {
    for index in 0..HIGH.load(Acquire) {
        if of_era(get(index).era.load(Relaxed)) {
            remove_idle(index);
        }
    }
}

/// Gives a link up if it has no connections. The caller holds the broker lock.
pub fn remove_idle(index: u32) {
    if get(index).conns.iter().all(|c| c.load(Relaxed) == 0) {
        remove(index);
    }
}

/// A slot of this link has been given back. If the link's broker is gone, no `Unlink` message will come. Such a link is given
/// up with its last slot.
pub fn collect(index: u32) {
    let is_orphaned = broker::SOCKET.load(Relaxed) < 0 || get(index).id().2 != broker::link_era();
    // Reentered: this signal handler has interrupted a thread that holds the lock. The link goes at the next join.
    if is_orphaned && broker::LOCK.lock(thread::tid()) != Taken::Reentered {
        remove_idle(index);
        broker::LOCK.unlock();
    }
}
