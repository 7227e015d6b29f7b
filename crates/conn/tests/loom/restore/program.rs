//! The program's end, as the preload library has it.

use super::{Connection, PROGRAM, STACK, byte, bytes};
use crate::START;
use crate::engine::Arc;
use sidestep_conn::phase::{Cell, Event, Phase};
use sidestep_conn::{Advance, Around, Course, Flip, Half, Read, Rx, Write, Writer, is_all_by_kernel};
use sidestep_ring::slot::{self, Wish};

pub struct Program {
    connection: Arc<Connection>,
    phase: Cell,
    rx: Rx,
    end: Writer,
    /// The positions, which `rx` and `end` count anew.
    pub read: u64,
    pub written: u64,
}

impl Program {
    /// On the kernel, ready for rings.
    pub fn new(connection: Arc<Connection>) -> Program {
        let phase = Cell::default();
        for event in [Event::Open, Event::Offer { passive: false }, Event::Assign, Event::Enter, Event::Ready] {
            phase.go(event).expect("one after the other");
        }
        connection.half(STACK).set_ready();
        let (rx, end) = (Rx::native(START), Writer::native(START, Flip::NEVER));
        Program { connection, phase, rx, end, read: START, written: START }
    }

    /// Enters both rings, and writes a byte.
    pub fn enter(&mut self) {
        let connection = self.connection.clone();
        assert_eq!(self.rx.next(connection.half(STACK)), Ok(Read::Ring(0)));
        let half = connection.half(PROGRAM);
        assert!(self.end.may_begin(half) && self.end.begin(half) == Ok(true));
        assert!(self.write());
    }

    /// Writes a byte. False: not now.
    pub fn write(&mut self) -> bool {
        let connection = self.connection.clone();
        let half = connection.half(PROGRAM);
        let next = [byte(self.written)];
        if !self.phase.is_attached() {
            connection.socket.send(&next);
            self.written += 1;
            return true;
        }
        loop {
            match self.end.tx.next(half, 1).expect("no violation") {
                Write::Ring(0) => return false,
                Write::Ring(_) => {
                    connection.rings[PROGRAM].put(self.end.tx.at(), &next);
                    self.end.put_ring(half, 1).expect("no violation");
                    self.written += 1;
                    self.heed();
                    return true;
                }
                Write::Unread { .. } if !self.send_unread() => return false,
                Write::Unread { .. } => {}
                Write::Kernel => {
                    self.look_for_the_stacks_end();
                    if !self.fetch_back() {
                        return false;
                    }
                    connection.socket.send(&next);
                    self.end.tx.put_kernel(1);
                    self.written += 1;
                    return true;
                }
            }
        }
    }

    /// A byte of the kernel would begin a stretch, if the stack wanted one.
    fn look_for_the_stacks_end(&mut self) {
        if slot::let_go(&self.connection.slot, STACK).is_some() {
            self.phase.go(Event::KeepForNow);
        }
        assert!(!self.end.may_begin(self.connection.half(PROGRAM)), "a stack that ends wants no stretch");
    }

    /// Waits for the stack, but not for ever. Here one look is all the time that there is.
    fn fetch_back(&self) -> bool {
        slot::wish(&self.connection.slot, Wish::Socket);
        slot::parked(&self.connection.slot).is_multiple_of(2)
    }

    fn heed(&mut self) {
        let connection = self.connection.clone();
        let half = connection.half(PROGRAM);
        if self.end.tx.in_ring() && !self.end.tx.asked_back(half) {
            return;
        }
        if self.end.is_wanted_back(half, Around::default()) {
            self.fetch_back();
        }
        self.end.heed(half, Around::default).expect("no violation");
        self.send_unread();
    }

    /// Sends what the stack has left in the ring. False: not now.
    fn send_unread(&mut self) -> bool {
        if !self.end.tx.has_unsent() {
            return true;
        }
        if !self.fetch_back() {
            return false;
        }
        let connection = self.connection.clone();
        let half = connection.half(PROGRAM);
        self.end.spare_copies(half, Around::default()).expect("no violation");
        if !half.claim_sending() {
            return false;
        }
        self.end.tx.heed_deputy(half).expect("no violation");
        while let Write::Unread { at, len } = self.end.tx.next(half, 0).expect("no violation") {
            connection.socket.send(&connection.rings[PROGRAM].get(at, len));
            self.end.tx.sent_unread(half, len);
        }
        half.has_sent();
        true
    }

    /// Reads a byte. False: there is none.
    pub fn read(&mut self) -> bool {
        let Some(got) = self.receive() else { return false };
        assert_eq!(got, byte(self.read), "the byte at {}", self.read);
        self.read += 1;
        true
    }

    fn receive(&mut self) -> Option<u8> {
        let connection = self.connection.clone();
        let half = connection.half(STACK);
        if !self.phase.is_attached() {
            return connection.socket.receive();
        }
        loop {
            match self.rx.next(half).expect("no violation") {
                Read::Ring(0) => return None,
                Read::Ring(_) => {
                    let got = connection.rings[STACK].get(self.rx.at(half), 1);
                    if self.rx.took_ring(half, 1).expect("no violation") == Advance::Done {
                        return Some(got[0]);
                    }
                }
                Read::Kernel(_) if !self.fetch_back() => return None,
                Read::Kernel(_) => {
                    let got = connection.socket.receive();
                    self.rx.took_kernel(got.iter().len());
                    return got;
                }
                Read::Copies => panic!("the stack sends no copies"),
            }
        }
    }

    /// To the kernel, and to the next offer, if nothing is left in a ring.
    pub fn demote(&mut self) -> bool {
        let connection = self.connection.clone();
        if !self.phase.is(Phase::Returning { for_good: false }) {
            return false;
        }
        let half = connection.half(STACK);
        withdraw(half);
        let queued = connection.socket.queued() as u64;
        if !is_all_by_kernel(&mut self.rx, &self.end.tx, half, queued) || !self.count_anew() {
            return false;
        }
        self.phase.go(Event::Demote).expect("attached");
        self.phase.go(Event::Renew).expect("demoted").gives_slot_back()
    }

    fn count_anew(&mut self) -> bool {
        if !slot::parked(&self.connection.slot).is_multiple_of(2) {
            return false;
        }
        let (read, written) = self.connection.socket.counts();
        (self.rx, self.end) = (Rx::native(read), Writer::native(written, Flip::NEVER));
        true
    }

    /// The stack has ended: the program reads what there is, until its connection can be offered again.
    pub fn come_to_rest(&mut self) {
        for _ in 0..4 {
            while self.read() {}
            self.heed();
            self.write();
            self.demote();
        }
        assert!(self.phase.is(Phase::Kernel { for_good: false }), "{:?}", self.phase.phase());
        assert_eq!(self.end.tx.course(), Course::Kernel);
        assert!(self.write(), "the kernel takes it");
    }

    /// Each byte has arrived once, in its place.
    pub fn check(&self) {
        assert_eq!(self.read, START + super::stack::RECEIVED as u64, "{:?}", bytes(self.read, 2));
        self.connection.socket.check(self.written);
    }
}

fn withdraw(half: Half) {
    if !half.is_unwanted() {
        half.withdraw_readiness();
        half.hint_freeze();
    }
}
