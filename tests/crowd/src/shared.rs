//! Several threads wait for one set that has all connections of a process, and its listener.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use sidestep_posix::sys::epoll::{ET, Epoll, IN, ONESHOT, OUT, RDHUP};
use sidestep_posix::sys::{Fd, fds, io};

use crate::note;
use crate::plan::Trigger;
use crate::side::Side;

/// Data of the listener's events, and of those that end the threads. Others are indices of connections.
const LISTENER: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;

/// Makes a connection of a listener's next one. None: there is none.
pub type Accept = fn(Fd) -> Option<Side>;

pub struct Shared {
    set: Epoll,
    outer: Option<Epoll>,
    trigger: Trigger,
    members: Mutex<Vec<Arc<Mutex<Member>>>>,
    /// Connections that have not ended.
    left: AtomicUsize,
    end: Fd,
    /// The listener, and what makes a connection of the next one.
    listener: Option<(Fd, Accept)>,
}

struct Member {
    /// None: it has ended.
    side: Option<Side>,
    mask: u32,
}

impl Shared {
    /// `left`: connections until it ends.
    pub fn new(trigger: Trigger, nested: bool, left: usize) -> Shared {
        let (set, end) = (Epoll::new(), fds::eventfd(0));
        let outer = nested.then(Epoll::new);
        if let Some(outer) = outer {
            outer.add(set.fd, IN);
        }
        set.control(libc::EPOLL_CTL_ADD, end, IN, END).expect("EPOLL_CTL_ADD");
        Shared { set, outer, trigger, members: Mutex::new(vec![]), left: left.into(), end, listener: None }
    }

    /// `accept` gets a descriptor that does not wait.
    pub fn listens(&mut self, fd: Fd, accept: Accept) {
        fds::set_nonblocking(fd, true);
        self.set.control(libc::EPOLL_CTL_ADD, fd, IN, LISTENER).expect("EPOLL_CTL_ADD");
        self.listener = Some((fd, accept));
    }

    pub fn add(&self, side: Side) {
        fds::set_nonblocking(side.fd(), true);
        let (fd, mask) = (side.fd(), self.mask(&side));
        let member = Arc::new(Mutex::new(Member { side: Some(side), mask }));
        let _guard = member.lock().expect("nobody panics with it");
        let mut members = self.members.lock().expect("nobody panics with it");
        members.push(member.clone());
        self.set.control(libc::EPOLL_CTL_ADD, fd, mask, members.len() as u64 - 1).expect("EPOLL_CTL_ADD");
    }

    fn mask(&self, side: &Side) -> u32 {
        match self.trigger {
            Trigger::Level => side.wanted(),
            Trigger::Edge => IN | OUT | RDHUP | ET,
            Trigger::OneShot => side.wanted() | ONESHOT,
            Trigger::EdgeOneShot => side.wanted() | ET | ONESHOT,
        }
    }

    /// Until all connections have ended.
    pub fn run(&self, threads: usize) {
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| while self.serve() {}))));
    }

    /// The events of one wait. False: all has ended.
    fn serve(&self) -> bool {
        if let Some(outer) = self.outer {
            outer.try_wait(1, -1).expect("epoll_wait");
        }
        let events = self.set.try_wait(4, if self.outer.is_some() { 0 } else { -1 }).expect("epoll_wait");
        for (mask, data) in events {
            assert_ne!(mask, 0, "an event without a reason");
            match data {
                END => return false,
                LISTENER => self.accept(),
                index => self.work_on(index),
            }
        }
        true
    }

    fn accept(&self) {
        let (fd, accept) = self.listener.expect("only a listener has such events");
        if let Some(side) = accept(fd) {
            self.add(side);
        }
    }

    fn work_on(&self, index: u64) {
        let member = self.members.lock().expect("nobody panics with it")[index as usize].clone();
        let mut member = member.lock().expect("nobody panics with it");
        let Some(side) = &mut member.side else { return };
        side.note.work_for();
        // An edge is told once, so that all must be done now.
        while !side.turn() && self.trigger == Trigger::Edge {}
        if side.is_done() {
            if side.rng.below(2) == 0 {
                self.set.delete(side.fd());
            }
            member.side.take().expect("it is there").close();
            return self.one_less();
        }
        note::step("waits in the shared set", "");
        let (fd, mask) = (side.fd(), self.mask(side));
        if mask & ONESHOT != 0 || mask != member.mask {
            self.set.control(libc::EPOLL_CTL_MOD, fd, mask, index).expect("EPOLL_CTL_MOD");
            member.mask = mask;
        }
    }

    /// Nobody reads the last event, which so ends every thread.
    fn one_less(&self) {
        if self.left.fetch_sub(1, SeqCst) == 1 {
            io::write(self.end, &1u64.to_ne_bytes()).expect("an event");
        }
    }
}
