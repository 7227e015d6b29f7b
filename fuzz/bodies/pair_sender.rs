//! The thread of an end that writes, a call at a time. It does what the library's glue does around the same state machines: see
//! `stream/tx.rs` and `stream/stretch.rs` in `crates/preload`.
#![allow(dead_code)] // each test uses its part

use super::pair_kernel::{Error, Sent};
use super::pair_receiver::Receiver;
use super::pair_wire::{Wire, byte};
use sidestep_abi::Reason;
use sidestep_conn::{Around, Course, Event, Flip, Half, Pace, Space, Write, Writer, holder};
use sidestep_ring::{counters, slot, space};

/// For how long a reader may stand still before a full ring, on the model's clock.
pub const PATIENCE: u64 = 20;

pub struct Sender {
    pub side: usize,
    pub writer: Writer,
    is_shut: bool,
    /// Bytes up to here are in a ring only, and nobody will send them by kernel: the reader has to read them there.
    pub only_in_ring_to: u64,
    /// The end of the stream has been announced, after all that had to be sent before it.
    pub has_finished: bool,
    /// A write has failed: nobody reads there.
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
    pub fn write(&mut self, wire: &Wire, n: usize) -> Result<usize, Error> {
        let half = wire.half(self.side);
        let mut left = n;
        self.begin_call(wire);
        while left > 0 {
            match self.writer.tx.next(half, left).expect("no violation") {
                Write::Ring(0) if !self.found_space(wire) => break,
                Write::Ring(0) => {}
                Write::Ring(space) => left -= self.by_ring(wire, half, left.min(space)),
                Write::Unread { .. } if !self.send_unread(wire) => break,
                Write::Unread { .. } => {}
                Write::Kernel if self.may_begin(wire) => drop(self.writer.begin(half).expect("no violation")),
                // This call has sent bytes, so it leaves the error to the next call.
                Write::Kernel if left < n && wire.call(|kernel| kernel.poll(self.side)).error => break,
                Write::Kernel => match self.by_kernel(wire, left) {
                    Sent::Some(n) => left -= n,
                    Sent::Full => break,
                    Sent::Fails(error) => {
                        self.is_refused = true;
                        return if left < n { Ok(n - left) } else { Err(error) };
                    }
                },
            }
        }
        assert!(left == n || !self.is_refused, "side {} writes after an error", self.side);
        Ok(n - left)
    }

    fn begin_call(&mut self, wire: &Wire) {
        if !self.writer.tx.in_ring() {
            return;
        }
        // The kernel's word on the peer: always asked, since no model of time says when it is due.
        if self.is_peer_gone(wire) {
            self.end(wire, Some(Reason::PeerClosing));
            self.send_unread(wire);
        }
        self.heed_hints(wire);
    }

    /// Whether the kernel says that the peer has ended its side, or that the connection is reset.
    fn is_peer_gone(&self, wire: &Wire) -> bool {
        wire.call(|kernel| kernel.poll(self.side).error || kernel.has_end(self.side))
    }

    fn end(&mut self, wire: &Wire, reason: Option<Reason>) {
        let (half, around) = (wire.half(self.side), self.around(wire));
        self.writer.end(half, around, reason).expect("no violation");
        if around.peer_is_shut && !self.writer.tx.has_unsent() {
            self.only_in_ring_to = self.writer.tx.pos();
        }
    }

    fn by_ring(&mut self, wire: &Wire, half: Half, n: usize) -> usize {
        wire.put(self.side, self.writer.tx.at(), self.writer.tx.pos(), n);
        self.writer.put_ring(half, n).expect("no violation");
        self.heed_hints(wire);
        n
    }

    fn by_kernel(&mut self, wire: &Wire, left: usize) -> Sent {
        let n = left.min(self.writer.kernel_piece());
        let bytes: Vec<u8> = (0..n as u64).map(|i| byte(self.writer.tx.pos() + i)).collect();
        let sent = wire.call(|kernel| kernel.send(self.side, &bytes));
        match sent {
            Sent::Some(n) => self.writer.tx.put_kernel(n),
            Sent::Full => self.writer.kernel_is_full(),
            Sent::Fails(_) => {}
        }
        sent
    }

    fn may_begin(&mut self, wire: &Wire) -> bool {
        let may = wire.phases[self.side].phase().permits_rings()
            && self.writer.may_begin(wire.half(self.side))
            && self.around(wire).hold.is_none();
        if !may {
            return false;
        }
        let fits = self.writer.fits(wire.call(|kernel| kernel.written(self.side)));
        assert_ne!(fits, Err(Reason::CountMismatch), "the kernel counts as the writer does");
        if fits.is_err() {
            wire.phases[self.side].go(Event::Keep);
        }
        fits.is_ok()
    }

    fn found_space(&mut self, wire: &Wire) -> bool {
        let read = counters::load(&wire.slot().counters[1 - self.side]).received();
        let pace = Pace { now: wire.now(), read, patience: PATIENCE };
        let around = self.around(wire);
        match self.writer.find_space(wire.half(self.side), around, pace).expect("no violation") {
            Space::Enough | Space::Left(_) => true,
            Space::Little { room } => room > 0,
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
        self.writer.spare_copies(half, self.around(wire)).expect("no violation");
        if !self.writer.tx.has_unsent() {
            self.only_in_ring_to = self.writer.tx.pos();
            return true;
        }
        if !half.claim_sending() {
            return self.wait_for_deputy(wire, half);
        }
        self.writer.tx.heed_deputy(half).expect("no violation");
        let all = self.send_claimed(wire, half);
        half.has_sent();
        all
    }

    /// The reader is sending these bytes to itself: false, unless the connection has ended meanwhile.
    fn wait_for_deputy(&mut self, wire: &Wire, half: Half) -> bool {
        if !wire.call(|kernel| kernel.is_reset(self.side)) {
            if !self.is_peer_killed(wire) {
                return false;
            }
            // Nobody else changes the words of this direction any more.
            self.writer.tx.heed_deputy(half).expect("no violation");
            self.writer.tx.poll(half).expect("no violation");
            if self.writer.tx.has_unsent() {
                self.writer.note_death();
            }
        }
        self.writer.tx.abandon(half);
        true
    }

    fn send_claimed(&mut self, wire: &Wire, half: Half) -> bool {
        while let Write::Unread { at, .. } = self.writer.tx.next(half, 0).expect("no violation") {
            if wire.call(|kernel| kernel.poll(self.side)).error {
                // Nobody takes these bytes, and a send would consume the error that the program must get.
                self.writer.tx.abandon(half);
                return true;
            }
            if self.is_peer_killed(wire) {
                self.writer.note_death();
            }
            let bytes = wire.get(self.side, at, 1);
            match wire.call(|kernel| kernel.send(self.side, &bytes)) {
                Sent::Some(n) => self.writer.tx.sent_unread(half, n),
                Sent::Full => {
                    space::wish(half.writer);
                    self.writer.tx.poll(half).expect("no violation");
                    if self.writer.tx.has_unsent() {
                        return false;
                    }
                }
                Sent::Fails(_) => self.writer.tx.abandon(half),
            }
        }
        true
    }

    /// The stream of the peer has ended without a word, and the connection is not reset as far as the kernel knows.
    fn is_peer_killed(&self, wire: &Wire) -> bool {
        let has_fin = wire.call(|kernel| kernel.has_end(self.side) && !kernel.is_reset(self.side));
        has_fin && !wire.half(1 - self.side).has_fin()
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
        self.end(wire, None);
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
        self.begin_to_shut();
        if self.end_stream(wire, None) {
            wire.call(|kernel| kernel.shut(self.side, false));
        }
        self.has_finished
    }

    /// All that is to be done before the kernel ends the stream. `reader`: of a side that may have shut its reading, too. True:
    /// it is done now.
    pub fn end_stream(&mut self, wire: &Wire, reader: Option<&mut Receiver>) -> bool {
        if !self.has_finished && !self.keep(wire) {
            return false;
        }
        if let Some(reader) = reader
            && reader.is_deaf
        {
            reader.enter_last_ring(wire);
            wire.half(self.side).set_shut();
        }
        self.announce_end(wire);
        true
    }

    /// shutdown or close was called: no write follows.
    pub fn begin_to_shut(&mut self) {
        self.is_shut = true;
    }

    /// Tells the peer's library that nothing follows. The kernel's end comes after that.
    pub fn announce_end(&mut self, wire: &Wire) {
        wire.half(self.side).set_fin();
        self.has_finished = true;
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
    let theirs = wire.half(1 - side);
    Around { peer_ended: theirs.has_fin(), peer_is_shut: theirs.is_shut(), hold: holder(away, held) }
}
