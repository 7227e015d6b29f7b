//! The two rings of a connection, used as the program's peer uses them.

mod left;

use crate::cause::Cause;
use crate::link::Link;
use crate::memory;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::net::{Shutdown, shutdown};
use sidestep_abi::Reason;
use sidestep_abi::link::Counters;
use sidestep_abi::sync::{Ordering, fence};
use sidestep_conn::{Advance, PeerViolation, Read, Rx, Tx, Write};
use sidestep_ring::input::distance;
use sidestep_ring::slot::{self, Wish};
use sidestep_ring::{counters, space};
use sidestep_sys::tcp::{Traffic, traffic};
use std::sync::Arc;

pub struct Program {
    link: Arc<Link>,
    slot: usize,
    /// Of the direction from the program.
    rx: Rx,
    /// Of the direction to the program.
    tx: Tx,
    parked: u32,
    before: Before,
    /// Of [`Program::hold_socket`].
    question: u32,
}

/// Added to the kernel's counts, which restart at each give-back, these give positions. Sums may wrap.
#[derive(Clone, Copy, Default)]
struct Before {
    received: u64,
    written: u64,
}

impl From<PeerViolation> for Cause {
    fn from(which: PeerViolation) -> Cause {
        Cause::Violation(which)
    }
}

impl Program {
    pub fn new(link: Arc<Link>, slot: usize) -> Program {
        link.listen(slot);
        Program { link, slot, rx: Rx::default(), tx: Tx::default(), parked: 0, before: Before::default(), question: 0 }
    }

    /// A program whose worker was killed while the kernel carried the connection.
    pub fn left(link: Arc<Link>, slot: usize) -> Program {
        let (incoming, outgoing) = (link.incoming(slot), link.outgoing(slot));
        let rx = Rx::found_left(incoming).unwrap_or_else(|| Rx::found(incoming, 0));
        let tx = Tx::found(outgoing, outgoing.tail(), false);
        let parked = slot::parked(link.slot(slot));
        Program { rx, tx, parked, before: Before::default(), question: 0, slot, link }
    }

    /// A program whose worker was killed while the stack carried the connection. `released`, `published`: the furthest positions
    /// that the worker may have reached.
    pub fn found(link: Arc<Link>, slot: usize, released: u64, published: u64) -> Program {
        let (rx, tx) = (Rx::found(link.incoming(slot), released), Tx::found(link.outgoing(slot), published, true));
        let parked = slot::parked(link.slot(slot));
        Program { rx, tx, parked, before: Before::default(), question: 0, slot, link }
    }

    /// Whether the program reads rings, and may begin a stretch.
    pub fn is_ready(&self) -> bool {
        let slot = self.link.slot(self.slot);
        !self.link.outgoing(self.slot).is_unwanted() && !slot::is_held(slot) && !slot::is_away(slot)
    }

    /// What the program wants. One that was killed has wished for nothing, and while the kernel carries its connection nothing but
    /// the released slot tells its end.
    pub fn wish(&self) -> Wish {
        if self.link.is_released(self.slot) { Wish::Slot } else { slot::wished(self.link.slot(self.slot)) }
    }

    /// The program has had its socket: its wish is fulfilled.
    pub fn grant_socket(&self) {
        slot::grant_socket(self.link.slot(self.slot));
    }

    /// Err: the program wants something, or is gone. The broker rings for one that has ended.
    pub fn check_wish(&self) -> Result<(), Cause> {
        match self.wish() {
            Wish::None => Ok(()),
            Wish::Socket => Err(Cause::Wanted),
            Wish::Slot => Err(Cause::Left),
        }
    }

    /// Whether the kernel has carried a byte in each direction since the last stretches, if there were any: only then others begin.
    pub fn has_moved(&mut self, carried: &Traffic) -> bool {
        // A program that wants its socket first announces copies of what is unread, and then learns that the kernel has it already.
        let settled = self.rx.discardable(self.link.incoming(self.slot), 0);
        if settled.is_err() || self.rx.expects_copies() {
            return false;
        }
        let Some((received, written)) = self.counted(carried) else { return false };
        self.tx.pos() == 0 && self.rx.pos() == 0 || received > self.tx.pos() && written > self.rx.pos()
    }

    /// The positions up to which the kernel has received and been given bytes. None: the connection is ending.
    fn counted(&self, carried: &Traffic) -> Option<(u64, u64)> {
        let [received, written] = counts(carried)?;
        Some((received.wrapping_add(self.before.received), written.wrapping_add(self.before.written)))
    }

    fn ask(&self, socket: BorrowedFd) -> Option<(u64, u64)> {
        self.counted(&traffic(socket.as_raw_fd())?)
    }

    /// Begins a stretch to the program, behind all bytes that its socket has received, and asks the program for one. The
    /// socket receives nothing any more. False: not now.
    pub fn begin(&mut self, socket: BorrowedFd) -> Result<bool, Cause> {
        let half = self.link.outgoing(self.slot);
        let Some((received, _)) = self.ask(socket) else { return Ok(false) };
        self.tx.put_kernel(received.wrapping_sub(self.tx.pos()) as usize);
        if !self.tx.may_begin(half) || !self.tx.begin(half)? {
            return Ok(false);
        }
        self.link.incoming(self.slot).set_ready();
        self.link.notify(self.slot);
        Ok(true)
    }

    /// Whether the program reads the ring. Only then it is worth a call to ask whether it [has entered](Program::has_entered) both.
    pub fn reads_ring(&self) -> bool {
        self.link.outgoing(self.slot).read_to().is_some()
    }

    /// Whether the program has entered the stretches of both directions. From then on it leaves the socket alone.
    pub fn has_entered(&mut self, socket: BorrowedFd) -> Result<bool, Cause> {
        if !self.reads_ring() {
            return Ok(false);
        }
        let Some((_, written)) = self.ask(socket) else { return Ok(false) };
        self.rx.took_kernel(written.wrapping_sub(self.rx.pos()) as usize);
        Ok(matches!(self.rx.next(self.link.incoming(self.slot))?, Read::Ring(_)))
    }

    /// The program must not use the socket from now on; or may again.
    pub fn set_parked(&mut self, is_parked: bool) {
        if is_parked == self.parked.is_multiple_of(2) {
            self.parked += 1;
            slot::set_parked(self.link.slot(self.slot), self.parked);
        }
    }

    /// Err: the program may use its socket now, which the stack has just marked as parked, or may have sent there what is in its ring. A
    /// program that wishes for its socket, or ends its stretch, looks at that mark afterwards, and has perhaps looked too early.
    pub fn check_rings(&mut self) -> Result<(), Cause> {
        fence(Ordering::SeqCst);
        self.check_wish()?;
        let half = self.link.incoming(self.slot);
        let reads = matches!(self.rx.next(half)?, Read::Ring(_));
        let is_ending = self.rx.is_last_of_ring(half) || self.rx.awaits_copies(half);
        if reads && !is_ending { Ok(()) } else { Err(Cause::LeftRings) }
    }

    /// Tells the program of news.
    pub fn notify(&self) {
        self.link.notify(self.slot);
    }

    pub fn ring_size(&self) -> usize {
        self.link.ring_size()
    }

    /// Number of bytes from the program that are not released.
    pub fn waiting(&mut self) -> Result<usize, Cause> {
        match self.rx.next(self.link.incoming(self.slot))? {
            Read::Ring(n) => Ok(n),
            Read::Kernel(_) | Read::Copies => Err(Cause::LeftRings),
        }
    }

    /// Appends `len` of these bytes to `to`, from the `skip`th on.
    pub fn copy(&self, skip: usize, len: usize, to: &mut Vec<u8>) {
        let at = self.rx.at(self.link.incoming(self.slot)).wrapping_add(skip as u64);
        memory::get(self.link.incoming_data(self.slot), at, len.min(self.ring_size()), to);
    }

    /// Appends `len` bytes of the program to `to`, from this position on. The ring holds them.
    pub fn copy_from(&self, position: u64, len: u64, to: &mut Vec<u8>) {
        let at = distance(self.link.incoming(self.slot).writer, position);
        memory::get(self.link.incoming_data(self.slot), at, (len as usize).min(self.ring_size()), to);
    }

    /// The first `n` of the program's bytes are not needed any more. Returns the position of the first one that is.
    pub fn release(&mut self, n: usize) -> Result<u64, Cause> {
        let half = self.link.incoming(self.slot);
        if self.rx.took_ring(half, n)? == Advance::Frozen {
            return Err(Cause::LeftRings);
        }
        let left = self.rx.unread(half);
        if space::grant(half.writer, left, half.size) {
            self.link.notify(self.slot);
        }
        counters::set_ring_rx(self.counters(), self.rx.ring);
        Ok(self.rx.pos())
    }

    /// Number of bytes to the program that it has not read.
    pub fn unread(&mut self) -> Result<u64, Cause> {
        self.tx.poll(self.link.outgoing(self.slot))?;
        if self.tx.in_ring() { Ok(self.tx.unread()) } else { Err(Cause::LeftRings) }
    }

    /// Copies bytes behind those that the program can read, at this distance from them. There is room.
    pub fn put(&self, distance: u32, bytes: &[u8]) {
        memory::put(self.link.outgoing_data(self.slot), self.tx.at() + u64::from(distance), bytes);
    }

    /// The program can read `n` more bytes, and is yet to be told: [`Program::notify`]. Returns the position after them.
    pub fn publish(&mut self, n: usize) -> Result<u64, Cause> {
        self.tx.put_ring(self.link.outgoing(self.slot), n)?;
        counters::set_ring_tx(self.counters(), self.tx.ring);
        if self.tx.in_ring() { Ok(self.tx.pos()) } else { Err(Cause::LeftRings) }
    }

    /// The program tells the stack when it has read enough. Space from before the wish is not announced: the caller looks once more.
    pub fn wish_space(&self) {
        space::wish(self.link.outgoing(self.slot).writer);
    }

    /// The positions of both directions: of the program's first byte that is not released, and after the last one that it can read.
    pub fn positions(&self) -> (u64, u64) {
        (self.rx.pos(), self.tx.pos())
    }

    /// Ends the program's reading in the ring, at the byte where it is.
    pub fn end_reading(&self) {
        self.link.outgoing(self.slot).freeze();
    }

    /// The bytes that the program no longer reads in the ring: the kernel gets them.
    pub fn left_unread(&mut self) -> Result<Vec<u8>, Cause> {
        let half = self.link.outgoing(self.slot);
        self.tx.poll(half)?;
        let Write::Unread { at, len } = self.tx.next(half, 0)? else { return Ok(Vec::new()) };
        let mut bytes = Vec::new();
        memory::get(self.link.outgoing_data(self.slot), at, len.min(self.ring_size()), &mut bytes);
        Ok(bytes)
    }

    /// The kernel carries the connection again. It has got the program's bytes before the position `end`, and `unread` bytes of
    /// [`Program::left_unread`]. `behind`: so many bytes of the program have been sent behind those, by a process that was killed in
    /// this, or by the program since.
    pub fn hand_over(&mut self, socket: BorrowedFd, end: u64, unread: usize, behind: u64) -> Result<(), Cause> {
        let left = self.leave_at(end);
        let half = self.link.outgoing(self.slot);
        if unread > 0 {
            self.tx.sent_unread(half, unread);
        }
        // Bytes that only the ring has are read there, also by a program that would leave the ring.
        let ended = if self.tx.in_ring() { self.tx.end_in_ring(half) } else { self.tx.end_without_copies(half) };
        // The program has left the ring since the look: nobody can put these bytes before what the kernel receives from now on.
        if self.tx.has_unsent() {
            half.leave_unsent();
            sidestep_sys::tcp::abort(socket.as_raw_fd());
        }
        // A program that may use its socket already has the counts, and sends the rest itself.
        if !self.parked.is_multiple_of(2) {
            let sent = end.saturating_add(behind);
            self.link.incoming(self.slot).found_sent(sent);
            self.count_anew(socket, sent);
            self.send_left(socket, None); // found_sent tells of a death in it
        }
        self.set_parked(false);
        self.shut(socket, end.saturating_add(behind));
        self.link.notify(self.slot);
        left?;
        Ok(ended?)
    }

    /// The socket was parked, and is the kernel's as before. The program may have left its shutdown(2) to the stack meanwhile.
    pub fn spare(&mut self, socket: BorrowedFd) {
        if !self.parked.is_multiple_of(2) {
            self.set_parked(false);
            self.shut(socket, self.rx.pos());
        }
    }

    /// Does what shutdown(2) of the program has left to the stack, since its socket was parked for longer than the program waits. The
    /// socket is announced before: the program first says that its stream ends, and then looks at that, so one of the two sees the other.
    /// `sent`: the kernel has got the bytes before, and perhaps more.
    fn shut(&self, socket: BorrowedFd, sent: u64) {
        fence(Ordering::SeqCst);
        let half = self.link.incoming(self.slot);
        let how = if half.is_shut() { Shutdown::Both } else { Shutdown::Write };
        // Without the bytes before it the stream would seem complete.
        if half.has_fin() && half.tail() <= sent.max(half.has_sent_to().unwrap_or(0)) {
            let _ = shutdown(socket, how); // a connection that has ended needs none
        }
    }

    /// The program has ended, or has given its slot back: it sends nothing any more.
    pub fn is_gone(&self) -> bool {
        self.link.is_released(self.slot)
    }

    /// The kernel counts from here: it has got the program's bytes before `end`, and has received those before the present tail.
    fn count_anew(&mut self, socket: BorrowedFd, end: u64) {
        let [received, written] = traffic(socket.as_raw_fd()).and_then(|carried| counts(&carried)).unwrap_or_default();
        self.before = Before { received: self.tx.pos().wrapping_sub(received), written: end.wrapping_sub(written) };
        // The program counts without the bytes of rings.
        slot::set_written_before(self.link.slot(self.slot), self.before.written.wrapping_sub(self.rx.ring));
    }

    /// For `sidestep status`: why the stack last gave the connection back.
    pub fn set_reason(&self, reason: Reason) {
        counters::set_reason(self.counters(), reason);
    }

    /// For `sidestep status`: bytes received and sent by kernel, received and sent by ring.
    pub fn bytes(&self) -> [u64; 4] {
        [0, 0, self.rx.ring, self.tx.ring]
    }

    fn counters(&self) -> &Counters {
        self.link.counters(self.slot)
    }

    /// This host's stack has copies of the socket from now on. `question`: the number of the broker's, by which the slot tells its
    /// connections apart ([`slot::hold_socket`]).
    pub fn hold_socket(&mut self, question: u32) {
        self.question = question;
        slot::hold_socket(self.link.slot(self.slot), question);
    }

    /// It has none any more.
    pub fn let_go_of_socket(&self) {
        slot::let_go_of_socket(self.link.slot(self.slot), self.question);
    }

    /// Leaves the program's ring at this position. What the program writes from now on it sends by kernel itself.
    fn leave_at(&mut self, end: u64) -> Result<(), Cause> {
        let half = self.link.incoming(self.slot);
        half.withdraw_readiness();
        let left = end.saturating_sub(self.rx.pos());
        let released = if self.rx.in_ring() { self.rx.took_ring(half, left as usize) } else { Ok(Advance::Done) };
        self.rx.freeze(half)?;
        half.hint_freeze();
        released?;
        Ok(())
    }

    /// The stack does not take the connection: no stretch begins any more, and those that have begun end.
    pub fn give_up(&mut self) {
        let half = self.link.incoming(self.slot);
        half.withdraw_readiness();
        let _ = self.rx.refuse(half).and_then(|()| self.rx.freeze(half));
        half.hint_freeze();
        let _ = self.tx.end_without_copies(self.link.outgoing(self.slot));
        self.set_parked(false);
        self.link.notify(self.slot);
    }
}

/// Bytes that have arrived, in order, and bytes written. None: the socket is not established in both directions.
fn counts(carried: &Traffic) -> Option<[u64; 2]> {
    carried.is_established.then_some([carried.bytes[0], carried.written])
}
