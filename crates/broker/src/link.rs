//! One link: the shared memory of a pair of members, and the connection in each slot.

use crate::addr::Endpoint;
use crate::domain::Scope;
use crate::matching::Ticket;
use crate::memory::{Hole, Memory};
use crate::quota::Permit;
use crate::raw::mem::LinkMem;
use crate::trust::Who;
use rustix::io;
use sidestep_abi::link::{self, PLACES, SLOTS, WORDS};
use sidestep_ring::{Half, doorbell, header, side, slot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One connection of a link.
#[derive(Debug)]
pub struct Connection {
    /// Cookies of the two sockets, by side.
    pub cookies: [u64; 2],
    /// The offers of the two ends, by side.
    pub tickets: [Ticket; 2],
    /// The processes of the two ends, by side.
    pub whos: [Who; 2],
    /// Addresses of side 0.
    pub local: Endpoint,
    pub remote: Endpoint,
    pub released: [bool; 2],
    /// Detached by name.
    pub hold: bool,
    /// Quota of the member that has released the slot, while the other has not.
    pub kept: Option<Permit>,
    /// In the domains of both ends.
    pub _permits: Vec<Permit>,
}

/// Result of a release.
#[derive(Debug)]
pub enum Released {
    /// The side has no such slot, or has released it before.
    Nothing,
    /// The other side still uses the slot.
    Half,
    /// Both sides have released the slot. It is free once its memory is given back; if a side is gone, it is not used again.
    Whole(Option<Hole>),
}

/// A pair of members (or one member twice) and their memory.
pub struct Link {
    pub id: u32,
    pub members: [u64; 2],
    /// Scopes of the members, by side.
    pub scopes: [Scope; 2],
    pub sides: [Side; 2],
    /// Slots that can be freed once the process that was cut off has ended.
    kept: Vec<usize>,
    /// The link is out of use: its eventfds are being removed from the doorbells.
    pub falls_silent: bool,
    /// By side: the eventfds with which that side rang are out of the doorbells, so it may be told to close them.
    pub unrung: [bool; 2],
    pub mem: LinkMem,
    pub memory: Arc<Memory>,
    /// Slots that have a connection, or whose memory is being given back.
    used: [u64; WORDS],
    connections: BTreeMap<usize, Connection>,
    pub permits: Permits,
}

/// State of a member of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Connected,
    /// The broker hung up on the process, but the process lives, with connections of this link.
    CutOff,
    /// No process uses the link on this side any more.
    Gone,
}

/// Quota that a link takes.
#[derive(Default)]
pub struct Permits {
    /// In the domains of both members: for its memory, wherever that is, and for the mapping of its head.
    pub descriptors: Vec<Permit>,
    pub mappings: Vec<Permit>,
    /// In the tables of its members.
    pub rooms: Vec<Permit>,
}

impl Link {
    pub fn create(
        id: u32,
        members: [u64; 2],
        (version, ring_size): (u32, u32),
        scopes: [Scope; 2],
        mut permits: Permits,
    ) -> io::Result<Link> {
        let (mem, fd) = LinkMem::create(ring_size as usize)?;
        header::init(mem.header(), version, ring_size);
        Ok(Link {
            id,
            members,
            scopes,
            sides: [Side::Connected; 2],
            kept: Vec::new(),
            falls_silent: false,
            unrung: [false; 2],
            mem,
            memory: Arc::new(Memory::new(fd, std::mem::take(&mut permits.descriptors))),
            used: [0; WORDS],
            connections: BTreeMap::new(),
            permits,
        })
    }

    pub fn connections(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.connections.iter().map(|(&slot, connection)| (slot, connection))
    }

    pub fn connection(&self, slot: usize) -> Option<&Connection> {
        self.connections.get(&slot)
    }

    pub fn connection_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.connections.get_mut(&slot)
    }

    /// Slots in use, by number.
    pub fn slots(&self) -> Vec<usize> {
        self.connections.keys().copied().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Whether both members are connected.
    pub fn is_whole(&self) -> bool {
        self.sides == [Side::Connected; 2]
    }

    /// Whether the link goes as soon as it is empty: a member is gone, and no process that was cut off may still use the link;
    /// or no member is connected.
    pub fn is_over(&self) -> bool {
        !self.sides.contains(&Side::Connected) || !self.is_whole() && !self.sides.contains(&Side::CutOff)
    }

    pub fn is_full(&self) -> bool {
        self.used == [u64::MAX; WORDS]
    }

    /// Gives a free slot to a connection. The slot's memory is touched only now.
    pub fn claim(&mut self, connection: Connection) -> Option<usize> {
        let word = self.used.iter().position(|&w| w != u64::MAX)?;
        let bit = self.used[word].trailing_ones() as usize;
        let number = word * 64 + bit;
        self.used[word] |= 1 << bit;
        slot::reset(self.mem.slot(number));
        self.connections.insert(number, connection);
        Some(number)
    }

    /// `side` releases slot `number`.
    pub fn release(&mut self, number: usize, side: usize) -> Released {
        let Some(connection) = self.connections.get_mut(&number).filter(|c| !c.released[side]) else {
            return Released::Nothing;
        };
        connection.released[side] = true;
        if !connection.released[1 - side] {
            slot::set_released(self.mem.slot(number), side);
            return Released::Half;
        }
        self.connections.remove(&number);
        Released::Whole(self.free(number))
    }

    /// Frees a slot. A side that is gone has not released the slot itself, and its process may live and still use the slot. So
    /// the slot's words stay as they are, on a link that gets no further connection. If a process was cut off, or both are
    /// gone, the bytes stay, too: the memory goes with the link, or when neither process has it mapped.
    fn free(&mut self, slot: usize) -> Option<Hole> {
        if !self.sides.contains(&Side::Connected) {
            return None;
        }
        if self.sides.contains(&Side::CutOff) {
            self.kept.push(slot);
            return None;
        }
        Some(self.hole(slot))
    }

    /// The process that was cut off on this side has ended. Returns the memory that was kept for it.
    pub fn outlive(&mut self, side: usize) -> Vec<Hole> {
        self.sides[side] = Side::Gone;
        let kept = if self.sides.contains(&Side::CutOff) { Vec::new() } else { std::mem::take(&mut self.kept) };
        kept.into_iter().filter_map(|slot| self.free(slot)).collect()
    }

    fn hole(&self, slot: usize) -> Hole {
        let ring_size = self.mem.ring_size();
        let (at, len) = (link::ring_at(ring_size, slot, 0) as u64, 2 * ring_size as u64);
        Hole { memory: self.memory.clone(), link: self.id, slot, at, len }
    }

    /// The memory of a slot was given back: the slot is free for another connection.
    pub fn punched(&mut self, number: usize) {
        if self.is_whole() && number < SLOTS && !self.connections.contains_key(&number) {
            self.used[number / 64] &= !(1 << (number % 64));
            slot::reset(self.mem.slot(number));
        }
    }

    /// The direction of a connection that side `writing` writes.
    pub fn half(&self, slot: usize, writing: usize) -> Half<'_> {
        Half::of(self.mem.slot(slot), writing, self.mem.ring_size())
    }

    /// Freezes the direction that `reader` reads. False: it was frozen already.
    pub fn freeze(&self, slot: usize, reader: usize) -> bool {
        self.half(slot, 1 - reader).freeze()
    }

    /// Makes both writers look at this connection's hold at their next call or wait.
    pub fn hint(&self, slot: usize) {
        (0..2).for_each(|writing| self.half(slot, writing).hint_freeze());
    }

    /// Whether a ring carries either direction, according to the shared words.
    pub fn is_by_ring(&self, slot: usize) -> bool {
        (0..2).any(|writing| self.half(slot, writing).read_to().is_some())
    }

    /// Makes `side` look at `slot`: marks the slot at its doorbells, and returns the places that the broker must ring. `all`:
    /// all places of that side; they are used if it names none for this connection.
    pub fn mark_ready(&self, slot: usize, side: usize, all: u64) -> u64 {
        let wanted = side::doorbells(&self.mem.slot(slot).side[side]);
        let places = if wanted & all != 0 { wanted & all } else { all };
        let doorbells = &self.mem.side(side).doorbells;
        let armed = bits(places).filter(|&place| doorbell::ring_and_leave_armed(&doorbells[place], slot));
        armed.fold(0, |mask, place| mask | 1 << place)
    }
}

/// Positions of the bits set.
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < PLACES).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_abi::link::{FROZEN, UNUSED};
    use std::net::SocketAddr;
    use std::sync::atomic::Ordering::Relaxed;

    fn connection() -> Connection {
        let end = Endpoint::from("10.0.0.1:80".parse::<SocketAddr>().expect("an address"));
        Connection {
            cookies: [1, 2],
            tickets: [1, 2].map(|member| Ticket { member, offer: 1 }),
            whos: [0, 0].map(Who::user),
            local: end,
            remote: end,
            released: [false; 2],
            hold: false,
            kept: None,
            _permits: Vec::new(),
        }
    }

    fn link() -> Link {
        Link::create(1, [1, 2], (sidestep_abi::VERSION, 4096), [Scope::Nobody; 2], Permits::default()).expect("memory")
    }

    /// Both sides release the slot, and its memory is given back.
    fn free(link: &mut Link, slot: usize) {
        assert!(matches!(link.release(slot, 0), Released::Half));
        assert!(matches!(link.release(slot, 1), Released::Whole(Some(hole)) if hole.slot == slot));
        link.punched(slot);
    }

    #[test]
    fn slots_are_given_once_until_all_are_taken() {
        let mut link = link();
        let given: Vec<_> = std::iter::from_fn(|| link.claim(connection())).collect();
        assert_eq!(given, (0..SLOTS).collect::<Vec<_>>());
        assert!(link.is_full());
    }

    #[test]
    fn a_slot_is_free_again_when_both_sides_released_it() {
        let mut link = link();
        let slots: Vec<_> = (0..3).filter_map(|_| link.claim(connection())).collect();
        assert_eq!(slots, [0, 1, 2]);
        assert!(matches!(link.release(1, 0), Released::Half));
        assert!(matches!(link.release(1, 0), Released::Nothing), "only once");
        assert_eq!(link.claim(connection()), Some(3), "not yet free");
        assert!(matches!(link.release(1, 1), Released::Whole(Some(_))));
        assert!(matches!(link.release(1, 1), Released::Nothing));
        assert_eq!(link.claim(connection()), Some(4), "its memory is on the way back");
        link.punched(1);
        link.punched(2);
        assert_eq!(link.claim(connection()), Some(1), "and 2 is somebody's");
        assert!(matches!(link.release(SLOTS - 1, 0), Released::Nothing));
    }

    #[test]
    fn memory_that_a_process_without_us_may_read_is_kept_until_its_end() {
        let mut link = link();
        let slot = link.claim(connection()).expect("a slot");
        link.sides[1] = Side::CutOff;
        assert!(matches!(link.release(slot, 1), Released::Half));
        assert!(matches!(link.release(slot, 0), Released::Whole(None)), "it may still be read");
        let holes = link.outlive(1);
        assert_eq!(holes.iter().map(|hole| hole.slot).collect::<Vec<_>>(), [slot]);
        assert!(link.outlive(1).is_empty(), "only once");
    }

    #[test]
    fn a_reused_slot_is_as_new() {
        let mut link = link();
        assert_eq!(link.claim(connection()), Some(0));
        let words = link.mem.slot(0);
        words.writer[1].tail.store(77, Relaxed);
        words.writer[1].epoch.store(3, Relaxed);
        words.writer[1].complete.store(3, Relaxed);
        words.writer[1].copied.store(9, Relaxed);
        words.reader[0].head.store(5, Relaxed);
        words.side[1].doorbells.store(u64::MAX, Relaxed);
        words.hold.store(1, Relaxed);
        free(&mut link, 0);
        assert_eq!(link.claim(connection()), Some(0));
        let words = link.mem.slot(0);
        assert_eq!((words.writer[1].tail.load(Relaxed), words.writer[1].epoch.load(Relaxed)), (0, 0));
        assert_eq!((words.writer[1].complete.load(Relaxed), words.writer[1].copied.load(Relaxed)), (0, 0));
        assert_eq!((words.reader[0].head.load(Relaxed), words.reader[1].head.load(Relaxed)), (UNUSED, UNUSED));
        assert_eq!((words.side[1].doorbells.load(Relaxed), words.hold.load(Relaxed)), (0, 0));
        assert_eq!(words.side[0].released.load(Relaxed), 0);
    }

    #[test]
    fn freezing_keeps_the_position_and_counts_once() {
        let mut link = link();
        let slot = link.claim(connection()).expect("free");
        link.mem.slot(slot).reader[0].head.store(1234, Relaxed);
        // Direction 0 is read by side 1.
        assert!(link.freeze(slot, 1));
        assert!(!link.freeze(slot, 1), "frozen already");
        let words = link.mem.slot(slot);
        assert_eq!(words.reader[0].head.load(Relaxed), FROZEN | 1234);
        assert_eq!((words.side[0].froze.load(Relaxed), words.side[1].froze.load(Relaxed)), (0, 1));
    }

    #[test]
    fn only_sleeping_places_are_rung_but_all_named_ones_are_marked() {
        let mut link = link();
        let slot = (0..=70).filter_map(|_| link.claim(connection())).last().expect("free");
        assert_eq!(slot, 70);
        link.mem.slot(slot).side[1].doorbells.store(1 << 3 | 1 << 5 | 1 << 60, Relaxed);
        link.mem.side(1).doorbells[5].armed.store(1, Relaxed);
        let all = 1 << 3 | 1 << 5;
        assert_eq!(link.mark_ready(slot, 1, all), 1 << 5, "3 is awake, 60 does not exist");
        for place in [3, 5] {
            let doorbell = &link.mem.side(1).doorbells[place];
            assert!(doorbell::is_marked(doorbell, slot));
        }
        assert_eq!(link.mem.side(1).doorbells[5].armed.swap(0, Relaxed), 1, "the sleeper itself says that it is awake");
        assert!(!doorbell::is_marked(&link.mem.side(1).doorbells[60], slot));
        link.mem.slot(slot).side[1].doorbells.store(0, Relaxed);
        link.mem.side(1).doorbells[3].armed.store(1, Relaxed);
        assert_eq!(link.mark_ready(slot, 1, all), 1 << 3, "no place named: all of them");
    }
}
