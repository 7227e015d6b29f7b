//! What the generator knows about the program so far, without running it.

use std::collections::BTreeMap;

use sidestep_posix::rng::Rng;

use crate::program::{Act, ActorId, Arg, Call, SLOTS, Slot, Step};

/// What a slot probably holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum What {
    Nothing,
    /// An end of a connection: 0 is side 0's.
    Connection {
        number: usize,
        end: usize,
    },
    Listener {
        name: u8,
        v6: bool,
    },
    Socket {
        v6: bool,
    },
    Epoll,
    PipeRead,
    PipeWrite,
    Unix,
    Udp,
    File,
    EventFd,
}

/// Properties of a whole program, so that programs differ.
pub struct Mood {
    pub signals: bool,
    pub forks: bool,
    pub operator: bool,
    pub urgent: bool,
    pub fills: bool,
    pub closes_behind_backs: bool,
    /// No call waits.
    pub quiet: bool,
    /// Of 10 connections, this many do not block.
    pub nonblocking: u64,
    /// Of 100 calls, this many get a wrong argument.
    pub wrong: u64,
    /// Connections are not warmed up.
    pub cold: bool,
}

pub struct World {
    pub rng: Rng,
    pub steps: Vec<Step>,
    pub mood: Mood,
    pub actors: BTreeMap<ActorId, [What; SLOTS]>,
    /// Most bytes that each end of each connection has sent and that nobody has asked for yet.
    pub unread: Vec<[u32; 2]>,
    pub next_child: ActorId,
    pub next_name: u8,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
        let mut once_in = |n| rng.below(n) == 0;
        let mood = Mood {
            signals: once_in(2),
            forks: once_in(3),
            operator: once_in(4),
            urgent: once_in(8),
            fills: once_in(3),
            closes_behind_backs: once_in(4),
            quiet: once_in(5),
            nonblocking: 5,
            wrong: 12,
            cold: once_in(6),
        };
        let nonblocking = if mood.quiet { 10 } else { rng.below(11) };
        let mood = Mood { nonblocking, wrong: *rng.pick(&[0, 5, 12, 30]), ..mood };
        World {
            rng,
            steps: vec![],
            mood,
            actors: BTreeMap::from([(0, [What::Nothing; SLOTS]), (1, [What::Nothing; SLOTS])]),
            unread: vec![],
            next_child: 2,
            next_name: 0,
        }
    }

    pub fn push(&mut self, at: ActorId, act: Act) {
        self.steps.push(Step { at, act });
    }

    /// Adds a call, one argument of which may be spoiled.
    pub fn call(&mut self, at: ActorId, name: &str, args: Vec<Arg>) {
        self.call_with(at, Call { name: name.into(), args, raw: false, into: None, wait_ms: None });
    }

    /// Adds a call with good arguments only.
    pub fn sound_call(&mut self, at: ActorId, name: &str, args: Vec<Arg>) {
        self.push(at, Act::Call(Call { name: name.into(), args, raw: false, into: None, wait_ms: None }));
    }

    pub fn call_with(&mut self, at: ActorId, mut call: Call) {
        if self.rng.below(100) < self.mood.wrong {
            super::spoil::spoil(&mut self.rng, &mut call, !self.mood.quiet);
        }
        let known = crate::calls::find(&call.name).expect("a known call");
        call.raw = known.number.is_some() && self.rng.below(8) == 0;
        self.push(at, Act::Call(call));
    }

    pub fn any_actor(&mut self) -> ActorId {
        let actors: Vec<ActorId> = self.actors.keys().copied().collect();
        *self.rng.pick(&actors)
    }

    pub fn what(&self, at: ActorId, slot: Slot) -> What {
        self.actors[&at][slot as usize]
    }

    pub fn set(&mut self, at: ActorId, slot: Slot, what: What) {
        self.actors.get_mut(&at).expect("an actor")[slot as usize] = what;
    }

    pub fn free_slot(&mut self, at: ActorId) -> Slot {
        let free: Vec<Slot> = (0..SLOTS as Slot).filter(|&s| self.what(at, s) == What::Nothing).collect();
        if free.is_empty() { self.any_slot() } else { free[0] }
    }

    pub fn any_slot(&mut self) -> Slot {
        self.rng.below(SLOTS as u64) as Slot
    }

    /// A slot of the actor that holds such a thing.
    pub fn slot_of(&mut self, at: ActorId, is: impl Fn(What) -> bool) -> Option<Slot> {
        let all: Vec<Slot> = (0..SLOTS as Slot).filter(|&s| is(self.what(at, s))).collect();
        if all.is_empty() { None } else { Some(*self.rng.pick(&all)) }
    }

    pub fn connection(&mut self, at: ActorId) -> Option<Slot> {
        self.slot_of(at, |what| matches!(what, What::Connection { .. }))
    }

    /// A slot to wait for or to examine: mostly a connection, sometimes anything.
    pub fn subject(&mut self, at: ActorId) -> Slot {
        if self.rng.below(6) > 0
            && let Some(slot) = self.connection(at)
        {
            return slot;
        }
        let used = self.slot_of(at, |what| what != What::Nothing);
        if self.rng.below(10) == 0 { self.any_slot() } else { used.unwrap_or(0) }
    }

    pub fn one_of<'a>(&mut self, names: &[&'a str]) -> &'a str {
        self.rng.pick::<&'a str>(names)
    }
}
