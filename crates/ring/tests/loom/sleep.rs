//! A waiter of a process: the words of its doorbell, its sleepers, and the eventfd that they sleep on.

use crate::engine::{Condvar, Mutex};
use sidestep_abi::link::Doorbell;
use sidestep_ring::{Sleepers, doorbell};

/// An eventfd: a write before the wait is not lost.
pub struct Eventfd {
    written: Mutex<bool>,
    changed: Condvar,
}

impl Eventfd {
    pub fn write(&self) {
        *self.written.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub fn wait(&self) {
        let mut written = self.written.lock().unwrap();
        while !*written {
            written = self.changed.wait(written).unwrap();
        }
        *written = false;
    }
}

pub struct Place {
    pub doorbell: Doorbell,
    pub eventfd: Eventfd,
    sleepers: Sleepers,
}

impl Place {
    pub fn new() -> Place {
        let eventfd = Eventfd { written: Mutex::new(false), changed: Condvar::new() };
        Place { doorbell: Doorbell::default(), eventfd, sleepers: Sleepers::default() }
    }

    /// What a producer does after it has published.
    pub fn ring(&self, slot: usize) {
        if doorbell::ring(&self.doorbell, slot, || ()) {
            self.eventfd.write();
        }
    }

    /// What the broker does after it has changed a slot.
    pub fn ring_as_broker(&self, slot: usize) {
        if doorbell::ring_and_leave_armed(&self.doorbell, slot) {
            self.eventfd.write();
        }
    }

    pub fn arm(&self) {
        self.sleepers.arm(|| core::iter::once(&self.doorbell));
    }

    pub fn disarm(&self, listening: bool) {
        if self.sleepers.disarm(listening, || core::iter::once(&self.doorbell)) {
            self.eventfd.write();
        }
    }

    pub fn disarm_if_idle(&self) {
        if self.sleepers.disarm_if_idle(|| core::iter::once(&self.doorbell)) {
            self.eventfd.write();
        }
    }

    /// Sleeps until the doorbell rings, unless there is something by then.
    pub fn sleep_unless(&self, is_ready: impl FnOnce() -> bool) {
        self.arm();
        if !is_ready() {
            self.eventfd.wait();
        }
        self.disarm(false);
    }

    /// Takes the marks. Returns whether there were some.
    pub fn poll(&self) -> bool {
        let mut found = false;
        doorbell::poll(&self.doorbell, |_| found = true);
        found
    }
}
