//! The stack's end: what the keeper does for a worker that was killed, one step after the other.

use super::{Connection, PROGRAM, Program, STACK, byte, bytes};
use crate::START;
use sidestep_abi::Reason;
use sidestep_conn::{Advance, Read, Rx, Tx, Write};
use sidestep_ring::input::distance;
use sidestep_ring::{counters, slot};

/// Bytes to the program that the worker has received. The last one is not published.
pub const RECEIVED: usize = 2;
/// The most steps of a restore, before each of which a process can be killed.
pub const STEPS: usize = 19;

/// What the worker has noted.
pub struct Ledger {
    /// The first byte that is not acknowledged, and the one after the last that was sent.
    una: u64,
    next: u64,
    /// Number of the program's bytes that the kernel is given. None: the connection is not being given back.
    given: Option<u64>,
    is_free: bool,
}

#[derive(Debug)]
pub struct Killed;

/// A process that is killed after so many steps.
pub struct Life(usize);

impl Life {
    pub fn of(steps: usize) -> Life {
        Life(steps)
    }

    /// The next step.
    fn step<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, Killed> {
        self.0 = self.0.checked_sub(1).ok_or(Killed)?;
        Ok(work())
    }
}

/// What the worker did before it was killed.
pub fn carry(connection: &Connection, program: &mut Program, is_acknowledged: bool) -> Ledger {
    let (incoming, outgoing) = (connection.half(PROGRAM), connection.half(STACK));
    let mut tx = Tx::native(START);
    assert_eq!(tx.begin(outgoing), Ok(true));
    incoming.set_ready();
    program.enter();
    assert_eq!(Rx::native(START).next(incoming), Ok(Read::Ring(1)));
    connection.rings[STACK].put(tx.at(), &bytes(START, RECEIVED));
    tx.put_ring(outgoing, RECEIVED - 1).expect("no violation");
    let una = START + u64::from(is_acknowledged);
    Ledger { una, next: START + 1, given: None, is_free: false }
}

/// As `crates/stack/src/handover.rs`.
pub fn restore(connection: &Connection, ledger: &mut Ledger, mut life: Life) -> Result<(), Killed> {
    if ledger.is_free {
        return Ok(());
    }
    let mut ends = Ends::found(connection, ledger);
    let is_live = ledger.given.is_some() && !connection.socket.is_detached();
    let (given, unread) = if is_live { (ledger.given.unwrap_or(0), Vec::new()) } else { ends.look(&mut life)? };
    if !is_live {
        life.step(|| ledger.given = Some(given))?;
        let in_flight = ends.written(ledger.una, (ledger.next - ledger.una) as usize);
        life.step(|| connection.socket.attach(unread.clone(), ledger.una, &in_flight))?;
    }
    let queued = connection.socket.sent_since();
    let left = ends.written(ledger.una + queued, given.saturating_sub(queued) as usize);
    life.step(|| connection.socket.send_as_stack(&left))?;
    ends.hand_over(ledger.una + given, unread.len(), queued.saturating_sub(given), &mut life)?;
    life.step(|| counters::set_reason(&connection.slot.counters[STACK], Reason::StackEnded))?;
    life.step(|| ledger.is_free = true)
}

/// The broker hears that no process of the stack is left.
pub fn leave(connection: &Connection) {
    connection.half(PROGRAM).freeze();
    connection.half(PROGRAM).has_sent();
}

/// As `crates/stack/src/program.rs`.
struct Ends<'c> {
    connection: &'c Connection,
    rx: Rx,
    tx: Tx,
    parked: u32,
}

impl<'c> Ends<'c> {
    fn found(connection: &'c Connection, ledger: &Ledger) -> Ends<'c> {
        let rx = Rx::found(connection.half(PROGRAM), ledger.una);
        let tx = Tx::found(connection.half(STACK), START + RECEIVED as u64, true);
        Ends { connection, rx, tx, parked: slot::parked(&connection.slot) }
    }

    /// How many bytes the program has written, and those that it has not read.
    fn look(&mut self, life: &mut Life) -> Result<(u64, Vec<u8>), Killed> {
        let waiting = match self.rx.next(self.connection.half(PROGRAM)) {
            Ok(Read::Ring(n)) => n as u64,
            other => panic!("{other:?}"),
        };
        let half = self.connection.half(STACK);
        life.step(|| half.freeze())?;
        self.tx.poll(half).expect("no violation");
        let left = self.tx.next(half, 0).expect("no violation");
        let Write::Unread { at, len } = left else { return Ok((waiting, Vec::new())) };
        Ok((waiting, self.connection.rings[STACK].get(at, len)))
    }

    /// The program's bytes from this position on.
    fn written(&self, position: u64, n: usize) -> Vec<u8> {
        let at = distance(self.connection.half(PROGRAM).writer, position);
        let got = self.connection.rings[PROGRAM].get(at, n);
        assert_eq!(got, bytes(position, n), "the ring as the stack sees it, from {}", byte(position));
        got
    }

    /// `behind`: so many bytes have been sent behind those before `end`.
    fn hand_over(&mut self, end: u64, unread: usize, behind: u64, life: &mut Life) -> Result<(), Killed> {
        let (incoming, outgoing) = (self.connection.half(PROGRAM), self.connection.half(STACK));
        life.step(|| incoming.withdraw_readiness())?;
        let left = end.saturating_sub(self.rx.pos()) as usize;
        if self.rx.in_ring() {
            let taken = life.step(|| self.rx.took_ring(incoming, left))?;
            assert_eq!(taken, Ok(Advance::Done), "only the stack ends it");
        }
        life.step(|| self.rx.freeze(incoming))?.expect("no violation");
        life.step(|| incoming.hint_freeze())?;
        if unread > 0 {
            life.step(|| self.tx.sent_unread(outgoing, unread))?;
        }
        life.step(|| {
            if self.tx.in_ring() { self.tx.end_in_ring(outgoing) } else { self.tx.end_without_copies(outgoing) }
        })?
        .expect("no violation");
        if !self.parked.is_multiple_of(2) {
            life.step(|| incoming.found_sent(end + behind))?;
        }
        self.send_left(life)?;
        life.step(|| self.release())
    }

    /// Sends what the program has written during the give-back.
    fn send_left(&mut self, life: &mut Life) -> Result<(), Killed> {
        let half = self.connection.half(PROGRAM);
        if !life.step(|| half.claim_sending())? {
            return Ok(());
        }
        if let Ok((from, at, len @ 1..)) = self.rx.left_behind(half) {
            let left = self.connection.rings[PROGRAM].get(at, len);
            life.step(|| self.connection.socket.send_as_stack(&left))?;
            life.step(|| half.set_sent_to(from + len as u64))?;
        }
        life.step(|| half.has_sent())
    }

    /// The program may use its socket.
    fn release(&mut self) {
        if !self.parked.is_multiple_of(2) {
            self.parked += 1;
            self.connection.socket.let_go();
            slot::set_parked(&self.connection.slot, self.parked);
        }
    }
}
