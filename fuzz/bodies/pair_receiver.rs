//! The thread of an end that reads, a call at a time. It does what the library's glue does around the same state machines: see
//! `stream/rx.rs` and `life` in `crates/preload`.
#![allow(dead_code)] // each test uses its part

use super::pair_kernel::{Error, Kernel, Received, Sent};
use super::pair_wire::{Wire, byte};
use sidestep_conn::{Advance, Event, Half, Read, Rx};
use sidestep_ring::counters;

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    Bytes(usize),
    Nothing,
    End,
    Fails(Error),
}

pub struct Receiver {
    /// The side that reads.
    pub side: usize,
    pub rx: Rx,
    /// shutdown(SHUT_RD) was called.
    pub is_deaf: bool,
    /// A read has failed.
    pub has_failed: bool,
}

impl Receiver {
    pub fn new(side: usize) -> Receiver {
        Receiver { side, rx: Rx::native(0), is_deaf: false, has_failed: false }
    }

    fn writes(&self) -> usize {
        1 - self.side
    }

    /// One read of up to `max` bytes that does not wait.
    pub fn read(&mut self, wire: &Wire, max: usize) -> Got {
        let got = self.step(wire, max);
        let mine = &wire.slot().counters[self.side];
        counters::set_kernel_rx(mine, self.rx.kernel);
        counters::set_ring_rx(mine, self.rx.ring);
        let more = matches!(got, Got::Bytes(_) | Got::Fails(_));
        assert!(!self.has_failed || !more, "side {} reads after a reset: {got:?}", self.side);
        self.has_failed |= matches!(got, Got::Fails(_));
        got
    }

    fn step(&mut self, wire: &Wire, max: usize) -> Got {
        let half = wire.half(self.writes());
        // The kernel's 0 is the end of the stream, or says only that this end has shut its reading side. Asked first: bytes that
        // come meanwhile are not passed over.
        let has_end = !self.is_deaf || wire.call(|kernel| kernel.has_end(self.side));
        loop {
            match self.rx.next(half).expect("no violation") {
                Read::Copies | Read::Ring(0) => match self.ask_kernel(wire, half) {
                    Asked::Again => {}
                    Asked::Nothing => return Got::Nothing,
                    Asked::Ended if !has_end => return Got::End,
                    Asked::Ended => return self.rest(wire, half, max),
                    Asked::Fails(_) if self.rx.keeps_reset(half) => {}
                    Asked::Fails(error) => return self.fails(half, error),
                },
                Read::Ring(there) => {
                    let (pos, at, n) = (self.rx.pos(), self.rx.at(half), there.min(max));
                    let bytes = wire.get(self.writes(), at, n);
                    if self.rx.took_ring(half, n).expect("no violation") == Advance::Done {
                        check(pos, &bytes, "ring");
                        return Got::Bytes(n);
                    }
                }
                Read::Kernel(limit) => {
                    let max = max.min(limit.min(usize::MAX as u64) as usize);
                    match wire.call(|kernel| kernel.receive(self.side, max)) {
                        Received::End if !has_end => return Got::End,
                        Received::End => return self.rest(wire, half, max),
                        Received::Nothing => return Got::Nothing,
                        Received::Fails(_) if self.rx.keeps_reset(half) => {}
                        Received::Fails(error) => return self.fails(half, error),
                        Received::Bytes(bytes) => {
                            check(self.rx.pos(), &bytes, "kernel");
                            self.rx.took_kernel(bytes.len());
                            return Got::Bytes(bytes.len());
                        }
                    }
                }
            }
        }
    }

    /// The kernel reports a reset. The peer may have been killed: the program gets ECONNRESET, not EPIPE, for bytes that it had
    /// not read.
    pub fn fails(&mut self, half: Half, error: Error) -> Got {
        self.rx.break_off(half).expect("no violation");
        Got::Fails(if half.has_fin() { error } else { Error::Reset })
    }

    fn ask_kernel(&mut self, wire: &Wire, half: Half) -> Asked {
        let has_hint = wire.call(|kernel| kernel.poll(self.side).any() || kernel.queued(self.side) > 0);
        if self.rx.in_ring() && !has_hint && !half.has_fin() {
            return Asked::Nothing;
        }
        if self.discard(wire) {
            return Asked::Again;
        }
        match wire.call(|kernel| kernel.peek(self.side, 1)) {
            Received::End => Asked::Ended,
            Received::Nothing => Asked::Nothing,
            Received::Fails(error) => Asked::Fails(error),
            Received::Bytes(_) if self.discard(wire) => Asked::Again,
            Received::Bytes(_) => {
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
            return if self.rx.is_reset_due(|| false) { self.fails(half, Error::Reset) } else { Got::End };
        }
        let (pos, bytes) = (self.rx.pos(), wire.get(self.writes(), self.rx.at(half), n));
        if self.rx.took_rest(half, n).expect("no violation") == Advance::Done {
            check(pos, &bytes, "what was left in the ring");
        }
        Got::Bytes(n)
    }

    /// Discards copies. Whether anything was done.
    pub fn discard(&mut self, wire: &Wire) -> bool {
        let queued = wire.call(|kernel| kernel.queued(self.side)) as u64;
        let was_expected = self.rx.expects_copies();
        let n = self.rx.discardable(wire.half(self.writes()), queued).expect("no violation");
        if n > 0
            && let Received::Bytes(bytes) = wire.call(|kernel| kernel.receive(self.side, n as usize))
        {
            self.rx.discarded(bytes.len() as u64);
        }
        n > 0 || was_expected && !self.rx.expects_copies()
    }

    /// Leaves the ring for somebody who reads from the kernel alone.
    pub fn leave(&mut self, wire: &Wire) {
        wire.phases[self.side].go(Event::Keep);
        self.rx.leave_ring(wire.half(self.writes())).expect("no violation");
    }

    /// Permits no further stretch.
    pub fn withdraw(&mut self, wire: &Wire) {
        let half = wire.half(self.writes());
        half.withdraw_readiness();
        half.hint_freeze();
    }

    /// Sends at most `most` bytes to itself that a writer that does nothing has not sent.
    pub fn deputise(&mut self, wire: &Wire, most: usize) {
        let half = wire.half(self.writes());
        if self.rx.in_ring() || !half.claim_sending() {
            return;
        }
        let (from, at, len) = self.rx.unsent(half).expect("no violation");
        let bytes = wire.get(self.writes(), at, len.min(most));
        // A send would consume the error of a reset, which is the writer's.
        let may_send = |kernel: &mut Kernel| kernel.may_send(self.writes()) && !kernel.poll(self.writes()).error;
        if !bytes.is_empty()
            && wire.call(may_send)
            && let Sent::Some(n) = wire.call(|kernel| kernel.send(self.writes(), &bytes))
        {
            half.set_sent_to(from + n as u64);
        }
        half.has_sent();
    }

    /// The end of the connection here, in both directions: no copy may come any more, so the rest is read in the ring.
    pub fn enter_last_ring(&mut self, wire: &Wire) {
        let half = wire.half(self.writes());
        half.withdraw_readiness();
        while self.discard(wire) {}
        self.rx.enter_ahead(half).expect("no violation");
    }

    /// Before close(2). True: what is unread in the ring must reset the connection.
    pub fn close(&mut self, wire: &Wire) -> bool {
        let half = wire.half(self.writes());
        self.rx.leave_ring(half).expect("no violation");
        // The library also waits a little for a writer that is sending some.
        self.rx.count_copies(half).expect("no violation");
        while self.discard(wire) {}
        self.rx.on_its_way() > 0 || self.rx.unread(half) > 0
    }
}

enum Asked {
    Nothing,
    Ended,
    Again,
    Fails(Error),
}

fn check(pos: u64, bytes: &[u8], carrier: &str) {
    let is_right = bytes.iter().zip(pos..).all(|(value, pos)| *value == byte(pos));
    assert!(is_right, "by {carrier} at {pos}");
}
