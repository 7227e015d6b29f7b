//! The two threads of an end: one that writes and one that reads, each a call at a time. They do what the library's glue does
//! around the same state machines: see `stream` in `crates/preload`.
#![allow(dead_code)] // each test uses its part

use super::pair_wire::{Sent, Wire, byte};
use sidestep_conn::{Advance, Around, Course, Event, Flip, Half, Pace, Read, Rx, Space, Write, Writer, holder};
use sidestep_ring::{counters, slot, space};

/// For how long a reader may stand still before a full ring, on the model's clock.
pub const PATIENCE: u64 = 20;

pub struct Sender {
    pub side: usize,
    pub writer: Writer,
    is_shut: bool,
    /// Bytes up to here are in a ring only, and nobody will send them by kernel: the reader has to read them there.
    pub only_in_ring_to: u64,
    /// shutdown was called, and has sent what had to be sent before it.
    pub has_finished: bool,
    /// The kernel has said that nobody reads there.
    pub is_refused: bool,
}

impl Sender {
    pub fn new(side: usize, flip: Flip) -> Sender {
        Sender {
            side,
            writer: Writer::native(0, flip),
            is_shut: false,
            only_in_ring_to: 0,
            has_finished: false,
            is_refused: false,
        }
    }

    fn around(&self, wire: &Wire) -> Around {
        around(wire, self.side)
    }

    /// One write of `n` bytes that does not wait: how many it took.
    pub fn write(&mut self, wire: &Wire, n: usize) -> usize {
        let half = wire.half(self.side);
        let mut left = n;
        self.begin_call(wire);
        while left > 0 && !self.is_refused {
            match self.writer.tx.next(half, left).expect("no violation") {
                Write::Ring(0) if !self.found_space(wire) => break,
                Write::Ring(0) => {}
                Write::Ring(space) => left -= self.by_ring(wire, half, left.min(space)),
                Write::Unread { .. } if !self.send_unread(wire) => break,
                Write::Unread { .. } => {}
                Write::Kernel if self.may_begin(wire) => drop(self.writer.begin(half).expect("no violation")),
                Write::Kernel => match self.by_kernel(wire, left) {
                    0 => break,
                    n => left -= n,
                },
            }
        }
        n - left
    }

    fn begin_call(&mut self, wire: &Wire) {
        if !self.writer.tx.in_ring() {
            return;
        }
        let around = self.around(wire);
        // The kernel's word on the peer: always asked, since no model of time says when it is due.
        if wire.has_ended(1 - self.side) || wire.is_broken(self.side) {
            self.writer
                .end(wire.half(self.side), around, Some(sidestep_abi::Reason::PeerClosing))
                .expect("no violation");
            self.send_unread(wire);
        }
        self.heed_hints(wire);
    }

    fn by_ring(&mut self, wire: &Wire, half: Half, n: usize) -> usize {
        wire.put(self.side, self.writer.tx.at(), self.writer.tx.pos(), n);
        self.writer.put_ring(half, n).expect("no violation");
        self.heed_hints(wire);
        n
    }

    fn by_kernel(&mut self, wire: &Wire, left: usize) -> usize {
        let n = left.min(self.writer.kernel_piece());
        let bytes: Vec<u8> = (0..n as u64).map(|i| byte(self.writer.tx.pos() + i)).collect();
        match wire.send(self.side, &bytes) {
            Sent::Some(n) => {
                self.writer.tx.put_kernel(n);
                n
            }
            Sent::Full => {
                self.writer.kernel_is_full();
                0
            }
            Sent::Gone => {
                self.is_refused = true;
                0
            }
        }
    }

    fn may_begin(&mut self, wire: &Wire) -> bool {
        let may = wire.phases[self.side].phase().permits_rings()
            && self.writer.may_begin(wire.half(self.side))
            && self.around(wire).hold.is_none();
        if may {
            assert_eq!(self.writer.fits(Some(wire.taken(self.side))), Ok(()), "the kernel counts as the writer does");
        }
        may
    }

    fn found_space(&mut self, wire: &Wire) -> bool {
        let read = counters::load(&wire.slot().counters[1 - self.side]).received();
        let pace = Pace { now: wire.now(), read, patience: PATIENCE };
        let around = self.around(wire);
        match self.writer.find_space(wire.half(self.side), around, pace).expect("no violation") {
            Space::Enough | Space::Left(_) => true,
            Space::Little { is_some } => is_some,
            Space::Stalled(_) => {
                self.send_unread(wire);
                true
            }
        }
    }

    fn heed_hints(&mut self, wire: &Wire) {
        let half = wire.half(self.side);
        if self.writer.tx.in_ring() && !self.writer.tx.asked_back(half) {
            return;
        }
        let side = self.side;
        if self.writer.heed(half, || around(wire, side)).expect("no violation").is_some() {
            self.send_unread(wire);
        }
    }

    /// Sends unread bytes of an ended stretch. False: not all of them go now.
    fn send_unread(&mut self, wire: &Wire) -> bool {
        let half = wire.half(self.side);
        if !self.writer.tx.has_unsent() {
            return true;
        }
        if !half.claim_sending() {
            // The reader sends them to itself, unless it has died over that.
            if wire.is_broken(self.side) {
                self.writer.tx.abandon(half);
                return true;
            }
            return false;
        }
        self.writer.tx.heed_deputy(half).expect("no violation");
        let all = self.send_claimed(wire, half);
        half.has_sent();
        all
    }

    fn send_claimed(&mut self, wire: &Wire, half: Half) -> bool {
        while let Write::Unread { at, .. } = self.writer.tx.next(half, 0).expect("no violation") {
            match wire.send(self.side, &wire.get(self.side, at, 1)) {
                Sent::Some(n) => self.writer.tx.sent_unread(half, n),
                Sent::Full => {
                    space::wish(half.writer);
                    self.writer.tx.poll(half).expect("no violation");
                    if self.writer.tx.has_unsent() {
                        return false;
                    }
                }
                Sent::Gone => self.writer.tx.abandon(half),
            }
        }
        true
    }

    /// What a thread does that was woken, or that begins to wait.
    pub fn serve(&mut self, wire: &Wire) {
        let has_hint = self.writer.tx.in_ring() && self.writer.tx.froze_seen() != wire.half(self.side).hints();
        if has_hint || self.writer.tx.has_unsent() {
            self.heed_hints(wire);
            self.send_unread(wire);
        }
    }

    /// Writes by kernel for good. False: the reader has left the ring, and the kernel does not take what it has not read.
    pub fn keep(&mut self, wire: &Wire) -> bool {
        let half = wire.half(self.side);
        wire.phases[self.side].go(Event::Keep);
        let around = self.around(wire);
        self.writer.end(half, around, None).expect("no violation");
        let has_sent_all = self.send_unread(wire);
        self.writer.tx.leave_in_ring(half).expect("no violation");
        let is_done = !self.writer.tx.has_unsent();
        if is_done && !has_sent_all {
            self.only_in_ring_to = self.writer.tx.pos();
        }
        is_done
    }

    /// shutdown(SHUT_WR). False: it waits for the kernel still.
    pub fn shut(&mut self, wire: &Wire) -> bool {
        self.is_shut = true;
        if !self.has_finished && self.keep(wire) {
            wire.half(self.side).set_fin();
            wire.finish(self.side);
            self.has_finished = true;
        }
        self.has_finished
    }

    /// Whether shutdown was called.
    pub fn is_shut(&self) -> bool {
        self.is_shut
    }

    pub fn course(&self) -> Course {
        self.writer.tx.course()
    }
}

fn around(wire: &Wire, side: usize) -> Around {
    let (away, held) = (slot::is_away(wire.slot()), slot::is_held(wire.slot()));
    Around { peer_ended: wire.half(1 - side).has_fin(), hold: holder(away, held) }
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    Bytes(usize),
    Nothing,
    End,
}

pub struct Receiver {
    /// The side that reads.
    pub side: usize,
    pub rx: Rx,
}

impl Receiver {
    pub fn new(side: usize) -> Receiver {
        Receiver { side, rx: Rx::native(0) }
    }

    fn writes(&self) -> usize {
        1 - self.side
    }

    /// One read of up to `max` bytes that does not wait.
    pub fn read(&mut self, wire: &Wire, max: usize) -> Got {
        let half = wire.half(self.writes());
        let got = loop {
            match self.rx.next(half).expect("no violation") {
                Read::Copies | Read::Ring(0) => match self.ask_kernel(wire, half) {
                    Asked::Again => {}
                    Asked::Nothing => break Got::Nothing,
                    Asked::Ended => break self.rest(wire, half, max),
                },
                Read::Ring(there) => {
                    let (pos, at, n) = (self.rx.pos(), self.rx.at(half), there.min(max));
                    let bytes = wire.get(self.writes(), at, n);
                    if self.rx.took_ring(half, n).expect("no violation") == Advance::Done {
                        check(pos, &bytes, "ring");
                        break Got::Bytes(n);
                    }
                }
                Read::Kernel(limit) => {
                    // The end is looked for first: bytes that come before it are not passed over.
                    let has_ended = wire.has_ended(self.writes());
                    let bytes = wire.take(self.writes(), max.min(limit.min(usize::MAX as u64) as usize));
                    match bytes.len() {
                        0 if has_ended => break self.rest(wire, half, max),
                        0 => break Got::Nothing,
                        n => {
                            check(self.rx.pos(), &bytes, "kernel");
                            self.rx.took_kernel(n);
                            break Got::Bytes(n);
                        }
                    }
                }
            }
        };
        let mine = &wire.slot().counters[self.side];
        counters::set_kernel_rx(mine, self.rx.kernel);
        counters::set_ring_rx(mine, self.rx.ring);
        got
    }

    fn ask_kernel(&mut self, wire: &Wire, half: Half) -> Asked {
        let has_ended = wire.has_ended(self.writes());
        if self.rx.in_ring() && !has_ended && !half.has_fin() {
            return Asked::Nothing;
        }
        if self.discard(wire) {
            return Asked::Again;
        }
        match wire.queued(self.writes()) {
            0 if has_ended => Asked::Ended,
            0 => Asked::Nothing,
            _ if self.discard(wire) => Asked::Again,
            _ => {
                let next = self.rx.next(half).expect("no violation");
                assert_ne!(next, Read::Ring(0), "bytes come by kernel that no writer of ours has sent");
                Asked::Again
            }
        }
    }

    /// The kernel has nothing more: what the writer left in the ring comes before the end.
    fn rest(&mut self, wire: &Wire, half: Half, max: usize) -> Got {
        let n = self.rx.rest(half).expect("no violation").min(max);
        if n == 0 {
            return Got::End;
        }
        let (pos, bytes) = (self.rx.pos(), wire.get(self.writes(), self.rx.at(half), n));
        if self.rx.took_rest(half, n).expect("no violation") == Advance::Done {
            check(pos, &bytes, "what was left in the ring");
        }
        Got::Bytes(n)
    }

    /// Discards copies. Whether anything was done.
    pub fn discard(&mut self, wire: &Wire) -> bool {
        let queued = wire.queued(self.writes()) as u64;
        let was_expected = self.rx.expects_copies();
        let n = self.rx.discardable(wire.half(self.writes()), queued).expect("no violation");
        wire.take(self.writes(), n as usize);
        self.rx.discarded(n);
        n > 0 || was_expected && !self.rx.expects_copies()
    }

    /// Leaves the ring for somebody who reads from the kernel alone.
    pub fn leave(&mut self, wire: &Wire) {
        wire.phases[self.side].go(Event::Keep);
        self.rx.leave_ring(wire.half(self.writes())).expect("no violation");
    }

    /// Sends at most `most` bytes to itself that a writer that does nothing has not sent.
    pub fn deputise(&mut self, wire: &Wire, most: usize) {
        let half = wire.half(self.writes());
        if self.rx.in_ring() || wire.has_ended(self.writes()) || !half.claim_sending() {
            return;
        }
        let (from, at, len) = self.rx.unsent(half).expect("no violation");
        let bytes = wire.get(self.writes(), at, len.min(most));
        if let Sent::Some(n) = wire.send(self.writes(), &bytes) {
            half.set_sent_to(from + n as u64);
        }
        half.has_sent();
    }
}

enum Asked {
    Nothing,
    Ended,
    Again,
}

fn check(pos: u64, bytes: &[u8], carrier: &str) {
    let is_right = bytes.iter().zip(pos..).all(|(value, pos)| *value == byte(pos));
    assert!(is_right, "by {carrier} at {pos}");
}
