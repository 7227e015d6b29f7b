//! The two rings of a connection, used as the program's peer uses them.

use crate::cause::Cause;
use crate::link::Link;
use crate::memory;
use rustix::fd::{AsRawFd, BorrowedFd};
use sidestep_conn::{Advance, PeerViolation, Read, Rx, Tx, Write};
use sidestep_ring::{slot, space};
use sidestep_sys::tcp::{self, Consumed};
use std::rc::Rc;

pub struct Program {
    link: Rc<Link>,
    slot: usize,
    /// Of the direction from the program.
    rx: Rx,
    /// Of the direction to the program.
    tx: Tx,
    parked: u32,
}

impl From<PeerViolation> for Cause {
    fn from(which: PeerViolation) -> Cause {
        Cause::Violation(which)
    }
}

impl Program {
    pub fn new(link: Rc<Link>, slot: usize) -> Program {
        link.listen(slot);
        Program { link, slot, rx: Rx::default(), tx: Tx::default(), parked: 0 }
    }

    /// Whether the program reads rings.
    pub fn is_ready(&self) -> bool {
        !self.link.outgoing(self.slot).is_unwanted()
    }

    /// Whether the program wants the kernel's socket.
    pub fn wants_kernel(&self) -> bool {
        slot::is_wanted(self.link.slot(self.slot))
    }

    /// Begins a stretch to the program, behind all bytes that its socket has received, and asks the program for one. The
    /// socket receives nothing any more. False: not now.
    pub fn begin(&mut self, socket: BorrowedFd) -> Result<bool, Cause> {
        let half = self.link.outgoing(self.slot);
        let queued = tcp::queued(socket.as_raw_fd()).map(u64::from);
        let (Consumed::Bytes(consumed), Ok(queued)) = (tcp::consumed(socket.as_raw_fd()), queued) else {
            return Ok(false);
        };
        self.tx = Tx::native(consumed + queued);
        if !self.tx.may_begin(half) || !self.tx.begin(half)? {
            return Ok(false);
        }
        self.link.incoming(self.slot).set_ready();
        self.link.notify(self.slot);
        Ok(true)
    }

    /// Whether the program has entered the stretches of both directions. From then on it leaves the socket alone.
    pub fn has_entered(&mut self, socket: BorrowedFd) -> Result<bool, Cause> {
        if self.link.outgoing(self.slot).read_to().is_none() {
            return Ok(false);
        }
        let Some(written) = tcp::written(socket.as_raw_fd()) else { return Ok(false) };
        self.rx = Rx::native(written);
        Ok(matches!(self.rx.next(self.link.incoming(self.slot))?, Read::Ring(_)))
    }

    /// The program must not use the socket from now on; or may again.
    pub fn set_parked(&mut self, is_parked: bool) {
        if is_parked == self.parked.is_multiple_of(2) {
            self.parked += 1;
            slot::set_parked(self.link.slot(self.slot), self.parked);
        }
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
            Read::Kernel(_) | Read::Copies => Err(Cause::Left),
        }
    }

    /// Appends `len` of these bytes to `to`, from the `skip`th on.
    pub fn copy(&self, skip: usize, len: usize, to: &mut Vec<u8>) {
        let at = self.rx.at(self.link.incoming(self.slot)).wrapping_add(skip as u64);
        memory::get(self.link.incoming_data(self.slot), at, len.min(self.ring_size()), to);
    }

    /// The first `n` of these bytes are not needed any more.
    pub fn release(&mut self, n: usize) -> Result<(), Cause> {
        let half = self.link.incoming(self.slot);
        if self.rx.took_ring(half, n)? == Advance::Frozen {
            return Err(Cause::Left);
        }
        let left = self.rx.unread(half);
        if space::grant(half.writer, left, half.size) {
            self.link.notify(self.slot);
        }
        Ok(())
    }

    /// Number of bytes to the program that it has not read.
    pub fn unread(&mut self) -> Result<u64, Cause> {
        self.tx.poll(self.link.outgoing(self.slot))?;
        if self.tx.in_ring() { Ok(self.tx.unread()) } else { Err(Cause::Left) }
    }

    /// Copies bytes behind those that the program can read, at this distance from them. There is room.
    pub fn put(&self, distance: u32, bytes: &[u8]) {
        memory::put(self.link.outgoing_data(self.slot), self.tx.at() + u64::from(distance), bytes);
    }

    /// The program can read `n` more bytes.
    pub fn publish(&mut self, n: usize) -> Result<(), Cause> {
        self.tx.put_ring(self.link.outgoing(self.slot), n)?;
        self.link.notify(self.slot);
        if self.tx.in_ring() { Ok(()) } else { Err(Cause::Left) }
    }

    /// Takes the bytes that the program has written: the kernel gets them. What it writes from now on it sends by kernel itself,
    /// after [`Program::hand_over`]. One look only: a program that writes on and on must not keep the worker here.
    pub fn take_all(&mut self, to: &mut Vec<u8>) -> Result<(), Cause> {
        self.link.incoming(self.slot).withdraw_readiness();
        if let Ok(n) = self.waiting() {
            self.copy(0, n, to);
            self.release(n)?;
        }
        let half = self.link.incoming(self.slot);
        self.rx.freeze(half)?;
        half.hint_freeze();
        Ok(())
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

    /// The kernel carries the connection again. `unread`: number of bytes of [`Program::left_unread`] that it has got.
    pub fn hand_over(&mut self, unread: usize) -> Result<(), Cause> {
        let half = self.link.outgoing(self.slot);
        if unread > 0 {
            self.tx.sent_unread(half, unread);
        }
        let ended = self.tx.end_without_copies(half);
        self.set_parked(false);
        self.link.notify(self.slot);
        Ok(ended?)
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
