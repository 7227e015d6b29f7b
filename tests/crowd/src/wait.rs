//! Ways to wait until a socket is ready. None has a limit of time: a lost wake-up is to hang.

use libc::{POLLIN, POLLOUT};
use sidestep_posix::sys::epoll::{ET, Epoll, IN, ONESHOT, OUT, RDHUP};
use sidestep_posix::sys::select::{Bits, Sets};
use sidestep_posix::sys::{Fd, fds, poll, select};

use crate::note;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Poll,
    Ppoll,
    Select,
    Level,
    Edge,
    OneShot,
    EdgeOneShot,
    /// A new set for each wait.
    Fresh,
    /// A set in a set.
    Nested,
    /// A set that poll looks at.
    PolledSet,
}

pub const ALL: &[Way] = &[
    Way::Poll,
    Way::Ppoll,
    Way::Select,
    Way::Level,
    Way::Edge,
    Way::OneShot,
    Way::EdgeOneShot,
    Way::Fresh,
    Way::Nested,
    Way::PolledSet,
];

impl Way {
    /// Whether it returns at once if the socket was ready before.
    pub fn tells_levels(self) -> bool {
        self != Way::Edge
    }

    fn name(self) -> &'static str {
        match self {
            Way::Poll => "poll",
            Way::Ppoll => "ppoll",
            Way::Select => "select",
            Way::Level => "a level-triggered set",
            Way::Edge => "an edge-triggered set",
            Way::OneShot => "a one-shot set",
            Way::EdgeOneShot => "an edge-triggered one-shot set",
            Way::Fresh => "a new set",
            Way::Nested => "a set in a set",
            Way::PolledSet => "poll of a set",
        }
    }

    /// What a member of a set has besides its events.
    fn flags(self) -> u32 {
        match self {
            Way::Edge => ET,
            Way::OneShot => ONESHOT,
            Way::EdgeOneShot => ET | ONESHOT,
            _ => 0,
        }
    }
}

pub struct Waiter {
    pub way: Way,
    sets: Option<Armed>,
}

/// The set, the events that it waits for, and the set that holds it.
struct Armed {
    set: Epoll,
    mask: u32,
    outer: Option<Epoll>,
}

impl Waiter {
    pub fn new(way: Way) -> Waiter {
        Waiter { way, sets: None }
    }

    /// Sleeps until the socket has one of these events.
    pub fn until(&mut self, fd: Fd, mask: u32) {
        note::step("waits by", self.way.name());
        let events = if mask & IN != 0 { POLLIN } else { 0 } | if mask & OUT != 0 { POLLOUT } else { 0 };
        match self.way {
            Way::Poll => assert_ne!(poll::events_of(fd, events, -1), 0, "poll without a limit of time found nothing"),
            Way::Ppoll => assert_eq!(poll::ppoll(&mut [poll::want(fd, events)], -1, None), Ok(1)),
            Way::Select => by_select(fd, mask),
            _ => self.by_set(fd, mask),
        }
    }

    fn by_set(&mut self, fd: Fd, mask: u32) {
        self.arm(fd, mask);
        let sets = self.sets.as_ref().expect("it was made");
        loop {
            match self.way {
                Way::Nested => assert_eq!(sets.outer.expect("it has one").wait(-1).len(), 1),
                Way::PolledSet => assert_ne!(poll::events_of(sets.set.fd, POLLIN, -1), 0),
                _ => {}
            }
            let is_told = sets.outer.is_some() || self.way == Way::PolledSet;
            let came = sets.set.wait(if is_told { 0 } else { -1 });
            if let [(events, data)] = came[..] {
                assert!(events != 0 && data == fd as u64, "an event of something else: {events:#x} of {data}");
                break;
            }
            assert!(is_told && came.is_empty(), "a set with one member gave {came:?}");
        }
        if self.way == Way::Fresh {
            self.forget();
        }
    }

    fn arm(&mut self, fd: Fd, mask: u32) {
        let way = self.way;
        // An edge that concerns the other direction, too, is told.
        let mask = if way == Way::Edge { IN | OUT | RDHUP } else { mask };
        match &mut self.sets {
            None => {
                let set = Epoll::new();
                set.add(fd, mask | way.flags());
                let outer = (way == Way::Nested).then(Epoll::new);
                if let Some(outer) = outer {
                    outer.add(set.fd, IN);
                }
                self.sets = Some(Armed { set, mask, outer });
            }
            Some(sets) if sets.mask != mask || way.flags() & ONESHOT != 0 => {
                sets.set.modify(fd, mask | way.flags());
                sets.mask = mask;
            }
            Some(_) => {}
        }
    }

    /// Closes its sets: the socket is to have another number.
    pub fn forget(&mut self) {
        if let Some(sets) = self.sets.take() {
            sets.outer.iter().for_each(|outer| fds::close(outer.fd).map(drop).expect("close of a set"));
            fds::close(sets.set.fd).expect("close of a set");
        }
    }
}

fn by_select(fd: Fd, mask: u32) {
    let bits = |wanted: u32| if mask & wanted == 0 { Bits::default() } else { Bits::of(&[fd]) };
    let mut sets = Sets { read: bits(IN), write: bits(OUT), except: Bits::default() };
    assert!(matches!(select::pselect(fd + 1, &mut sets, HOURS, None), Ok(1 | 2)));
}

/// The wrapper of select has no call without a limit; a hang is found long before.
const HOURS: i64 = 36_000_000;
