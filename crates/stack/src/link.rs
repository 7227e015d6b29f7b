//! A link to a program: its memory, and the doorbells of the program.

use crate::memory::Memory;
use rustix::fd::OwnedFd;
use rustix::io;
use sidestep_abi::link::{Counters, Doorbell, PLACES, Slot};
use sidestep_abi::msg::Msg;
use sidestep_ring::{Data, Half, doorbell, side, slot};
use sidestep_sys::arch;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of the worker's only doorbell.
pub const PLACE: u32 = 0;

pub struct Link {
    memory: Memory,
    /// The worker's side.
    side: usize,
    /// Eventfds by which the program is rung, by the number of its waiter.
    bells: Mutex<[Option<OwnedFd>; PLACES]>,
}

impl Link {
    /// As the broker announces it ([`sidestep_abi::msg::Kind::Link`]).
    pub fn new(file: &OwnedFd, msg: &Msg) -> io::Result<Link> {
        let memory = Memory::map(file, usize::try_from(msg.arg).unwrap_or(0))?;
        Ok(Link { memory, side: (msg.side & 1) as usize, bells: Mutex::new([const { None }; PLACES]) })
    }

    pub fn ring_size(&self) -> usize {
        self.memory.ring_size()
    }

    pub fn slot(&self, slot: usize) -> &Slot {
        self.memory.slot(slot)
    }

    /// Whether the program has released the slot, or has died, as the broker says.
    pub fn is_released(&self, slot: usize) -> bool {
        slot::is_released(self.slot(slot), 1 - self.side)
    }

    /// The counters of the worker's side.
    pub fn counters(&self, slot: usize) -> &Counters {
        &self.slot(slot).counters[self.side]
    }

    /// The direction from the program.
    pub fn incoming(&self, slot: usize) -> Half<'_> {
        Half::of(self.slot(slot), 1 - self.side, self.ring_size())
    }

    /// The direction to the program.
    pub fn outgoing(&self, slot: usize) -> Half<'_> {
        Half::of(self.slot(slot), self.side, self.ring_size())
    }

    /// The bytes from the program.
    pub fn incoming_data(&self, slot: usize) -> Data {
        self.memory.ring(slot, 1 - self.side)
    }

    /// The bytes to the program.
    pub fn outgoing_data(&self, slot: usize) -> Data {
        self.memory.ring(slot, self.side)
    }

    /// The worker's doorbell, which the program rings.
    pub fn doorbell(&self) -> &Doorbell {
        &self.memory.side(self.side).doorbells[PLACE as usize]
    }

    /// The program rings the worker's doorbell for this slot from now on.
    pub fn listen(&self, slot: usize) {
        side::add_doorbell(&self.slot(slot).side[self.side], PLACE);
    }

    /// The eventfd of the program's waiter `place` has arrived. The waiter may have missed news, so it is rung once now.
    pub fn set_doorbell(&self, place: usize, eventfd: OwnedFd) {
        let place = place % PLACES;
        ring(&eventfd);
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(eventfd);
        doorbell::add_known(self.memory.side(self.side), place as u32);
    }

    /// Tells the program of news in this slot. The caller has published them, and a full fence.
    pub fn notify(&self, slot: usize) {
        let mut bells = side::doorbells(&self.slot(slot).side[1 - self.side]);
        let stamp = || self.outgoing(slot).stamp(arch::ticks());
        if bells == 0 {
            stamp(); // a waiter that registers soon reads this time
        }
        while bells != 0 {
            let place = bells.trailing_zeros() as usize;
            bells &= bells - 1;
            let bell = &self.memory.side(1 - self.side).doorbells[place];
            if doorbell::ring(bell, slot, stamp) && !self.ring(place) {
                doorbell::rearm(bell); // the next news try again
            }
        }
    }

    /// False: the waiter's eventfd has not arrived yet.
    fn ring(&self, place: usize) -> bool {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)[place].as_ref().is_some_and(ring)
    }
}

/// A link, and the connections of its slots.
pub struct Served {
    pub link: Arc<Link>,
    /// The broker has given it up. It is needed until no connection is left.
    pub is_over: bool,
    conns: Vec<Option<u32>>,
}

impl Served {
    pub fn new(link: Link) -> Served {
        Served { link: Arc::new(link), is_over: false, conns: Vec::new() }
    }

    /// The connection of a slot, by its number.
    pub fn conn(&self, slot: usize) -> Option<u32> {
        self.conns.get(slot).copied().flatten()
    }

    /// The slot has this connection from now on.
    pub fn set_conn(&mut self, slot: usize, conn: Option<u32>) {
        if self.conns.len() <= slot {
            self.conns.resize(slot + 1, None);
        }
        self.conns[slot] = conn;
    }

    /// All connections.
    pub fn conns(&self) -> impl Iterator<Item = u32> {
        self.conns.iter().copied().flatten()
    }
}

fn ring(eventfd: &OwnedFd) -> bool {
    rustix::io::write(eventfd, &1u64.to_ne_bytes()).is_ok()
}
