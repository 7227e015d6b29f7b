//! One link: the shared segment of a pair of members, and which connection holds which slot.

mod words;

pub use words::bits;

use crate::addr::Endpoint;
use crate::domain::Scope;
use crate::matching::Ticket;
use crate::memory::{Hole, Memory};
use crate::quota::Permit;
use crate::raw::mem::LinkMem;
use rustix::io;
use sidestep_abi::link::{self, SLOTS, Slot, UNUSED, WORDS};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// One connection of a link.
#[derive(Debug)]
pub struct Connection {
    /// Cookies of the two sockets, by side.
    pub cookies: [u64; 2],
    /// The offers that they came from, by side.
    pub tickets: [Ticket; 2],
    /// Their users, by side.
    pub uids: [u32; 2],
    /// Of side 0.
    pub local: Endpoint,
    pub remote: Endpoint,
    pub released: [bool; 2],
    /// Detached by name.
    pub hold: bool,
    /// Of the member that has released it, while the other has not.
    pub kept: Option<Permit>,
}

/// What a release did.
#[derive(Debug)]
pub enum Released {
    /// Not a slot of that side (any more).
    Nothing,
    /// The other side still uses it.
    Half,
    /// Both are done. The slot is free once its memory is given back, unless a side is gone.
    Whole(Option<Hole>),
}

/// A pair of members (or one member twice) and their memory.
pub struct Link {
    pub id: u32,
    pub members: [u64; 2],
    /// Of its members.
    pub scopes: [Scope; 2],
    pub sides: [Side; 2],
    /// Slots that are free once no process lives that was cut off.
    kept: Vec<usize>,
    /// Nobody rings any more: what rings is being taken out of the doorbells.
    pub falls_silent: bool,
    /// What that side rang with has left the other's doorbells: it may be told to let go of it.
    pub unrung: [bool; 2],
    pub mem: LinkMem,
    pub memory: Arc<Memory>,
    /// Slots that are given to a connection, or whose memory is being given back.
    used: [u64; WORDS],
    connections: BTreeMap<usize, Connection>,
    pub permits: Permits,
}

/// How far a member of a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Connected,
    /// We hung up on it, and its process lives, with connections of this link.
    CutOff,
    /// Nobody uses the link on this side any more.
    Gone,
}

/// What a link takes.
#[derive(Default)]
pub struct Permits {
    /// Of the domains of both: for its memory, wherever that is, and for the mapping of the head.
    pub descriptors: Vec<Permit>,
    pub mappings: Vec<Permit>,
    /// Of its members.
    pub rooms: Vec<Permit>,
}

impl Link {
    pub fn create(
        id: u32,
        members: [u64; 2],
        ring_size: u32,
        scopes: [Scope; 2],
        mut permits: Permits,
    ) -> io::Result<Link> {
        let (mem, fd) = LinkMem::create(ring_size as usize)?;
        let header = mem.header();
        header.slots.store(SLOTS as u32, Relaxed);
        header.ring_size.store(ring_size, Relaxed);
        header.version.store(sidestep_abi::VERSION, Relaxed);
        header.magic.store(sidestep_abi::MAGIC, SeqCst);
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

    /// Whether it goes as soon as it is empty: a member has gone, and nobody who was cut off may use it still; or both have
    /// been hung up on.
    pub fn is_over(&self) -> bool {
        !self.sides.contains(&Side::Connected) || !self.is_whole() && !self.sides.contains(&Side::CutOff)
    }

    pub fn is_full(&self) -> bool {
        self.used == [u64::MAX; WORDS]
    }

    /// Gives a free slot to a connection. Its memory is touched only now.
    pub fn take(&mut self, connection: Connection) -> Option<usize> {
        let word = self.used.iter().position(|&w| w != u64::MAX)?;
        let bit = self.used[word].trailing_ones() as usize;
        let slot = word * 64 + bit;
        self.used[word] |= 1 << bit;
        reset(self.mem.slot(slot));
        self.connections.insert(slot, connection);
        Some(slot)
    }

    /// `side` is done with `slot`.
    pub fn release(&mut self, slot: usize, side: usize) -> Released {
        let Some(connection) = self.connections.get_mut(&slot).filter(|c| !c.released[side]) else {
            return Released::Nothing;
        };
        connection.released[side] = true;
        if !connection.released[1 - side] {
            self.mem.slot(slot).side[side].released.store(1, SeqCst);
            return Released::Half;
        }
        self.connections.remove(&slot);
        Released::Whole(self.free(slot))
    }

    /// A side that is gone has not released the slot itself, and may use it still: its process can have lost us and
    /// live. So its words stay as they are, on a link that gets no further connection; and so do the bytes that it has yet
    /// to read, if we have hung up on it or both are gone. Then the memory goes with it, or when neither has it mapped.
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

    /// The process that was cut off on this side does not live any more: the memory that it has kept.
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

    /// The memory of a slot was given back: another connection may have it.
    pub fn punched(&mut self, slot: usize) {
        if self.is_whole() && slot < SLOTS && !self.connections.contains_key(&slot) {
            self.used[slot / 64] &= !(1 << (slot % 64));
            reset(self.mem.slot(slot));
        }
    }
}

/// As if it had never carried anything.
fn reset(slot: &Slot) {
    for direction in 0..2 {
        let writer = &slot.writer[direction];
        for word in [&writer.tail, &writer.base, &writer.ring_from, &writer.resume, &writer.copied, &writer.sent_to] {
            word.store(0, Relaxed);
        }
        for word in [&writer.epoch, &writer.wants_space, &writer.fin, &writer.complete] {
            word.store(0, Relaxed);
        }
        slot.reader[direction].head.store(UNUSED, Relaxed);
        let side = &slot.side[direction];
        side.bells.store(0, Relaxed);
        for word in [&side.ready, &side.seen_epoch, &side.froze, &side.released, &side.sends, &side.number, &side.away]
        {
            word.store(0, Relaxed);
        }
        let counters = &slot.counters[direction];
        for word in [&counters.kernel_tx, &counters.kernel_rx, &counters.ring_tx, &counters.ring_rx] {
            word.store(0, Relaxed);
        }
        counters.reason.store(0, Relaxed);
    }
    slot.hold.store(0, SeqCst);
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::net::SocketAddr;

    pub fn connection() -> Connection {
        let end = Endpoint::from("10.0.0.1:80".parse::<SocketAddr>().expect("an address"));
        Connection {
            cookies: [1, 2],
            tickets: [1, 2].map(|member| Ticket { member, offer: 1 }),
            uids: [0; 2],
            local: end,
            remote: end,
            released: [false; 2],
            hold: false,
            kept: None,
        }
    }

    pub fn link() -> Link {
        Link::create(1, [1, 2], 4096, [Scope::Nobody; 2], Permits::default()).expect("memory")
    }

    /// Both sides give it back, and its memory is.
    fn free(link: &mut Link, slot: usize) {
        assert!(matches!(link.release(slot, 0), Released::Half));
        assert!(matches!(link.release(slot, 1), Released::Whole(Some(hole)) if hole.slot == slot));
        link.punched(slot);
    }

    #[test]
    fn slots_are_given_once_until_all_are_taken() {
        let mut link = link();
        let given: Vec<_> = std::iter::from_fn(|| link.take(connection())).collect();
        assert_eq!(given, (0..SLOTS).collect::<Vec<_>>());
        assert!(link.is_full());
    }

    #[test]
    fn a_slot_is_free_again_when_both_sides_released_it() {
        let mut link = link();
        let slots: Vec<_> = (0..3).filter_map(|_| link.take(connection())).collect();
        assert_eq!(slots, [0, 1, 2]);
        assert!(matches!(link.release(1, 0), Released::Half));
        assert!(matches!(link.release(1, 0), Released::Nothing), "only once");
        assert_eq!(link.take(connection()), Some(3), "not yet free");
        assert!(matches!(link.release(1, 1), Released::Whole(Some(_))));
        assert!(matches!(link.release(1, 1), Released::Nothing));
        assert_eq!(link.take(connection()), Some(4), "its memory is on the way back");
        link.punched(1);
        link.punched(2);
        assert_eq!(link.take(connection()), Some(1), "and 2 is somebody's");
        assert!(matches!(link.release(SLOTS - 1, 0), Released::Nothing));
    }

    #[test]
    fn memory_that_a_process_without_us_may_read_is_kept_until_its_end() {
        let mut link = link();
        let slot = link.take(connection()).expect("a slot");
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
        assert_eq!(link.take(connection()), Some(0));
        let words = link.mem.slot(0);
        words.writer[1].tail.store(77, Relaxed);
        words.writer[1].epoch.store(3, Relaxed);
        words.writer[1].complete.store(3, Relaxed);
        words.writer[1].copied.store(9, Relaxed);
        words.reader[0].head.store(5, Relaxed);
        words.side[1].bells.store(u64::MAX, Relaxed);
        words.hold.store(1, Relaxed);
        free(&mut link, 0);
        assert_eq!(link.take(connection()), Some(0));
        let words = link.mem.slot(0);
        assert_eq!((words.writer[1].tail.load(Relaxed), words.writer[1].epoch.load(Relaxed)), (0, 0));
        assert_eq!((words.writer[1].complete.load(Relaxed), words.writer[1].copied.load(Relaxed)), (0, 0));
        assert_eq!((words.reader[0].head.load(Relaxed), words.reader[1].head.load(Relaxed)), (UNUSED, UNUSED));
        assert_eq!((words.side[1].bells.load(Relaxed), words.hold.load(Relaxed)), (0, 0));
        assert_eq!(words.side[0].released.load(Relaxed), 0);
    }
}
