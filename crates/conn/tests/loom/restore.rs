//! A stack that ends while it carries a connection: its keeper gives the connection back, and may be killed anywhere in that; then the
//! standby does it. The program goes on meanwhile, and offers the connection again. `crates/stack/src/handover.rs` and
//! `crates/preload/src/attach.rs` have the same steps around the same code of this crate.

mod program;
mod socket;
mod stack;

use crate::SIZE;
use crate::engine::{Arc, explore, thread};
use crate::memory::Memory;
use program::Program;
use sidestep_abi::link::Slot;
use sidestep_conn::Half;
use sidestep_ring::slot;
use socket::Socket;
use stack::{Ledger, Life, STEPS};

/// The sides of the link. A direction has the name of the side that writes it.
const PROGRAM: usize = 0;
const STACK: usize = 1;

/// What program and stack share.
struct Connection {
    slot: Slot,
    rings: [Memory; 2],
    socket: Socket,
}

impl Connection {
    fn new() -> Connection {
        let connection = Connection {
            slot: Slot::default(),
            rings: [PROGRAM, STACK].map(|_| Memory::new(SIZE)),
            socket: Socket::parked(),
        };
        connection.slot.reader.iter().for_each(slot::reset_reader);
        // The program relies on nothing that the broker says: it says so from the beginning.
        slot::set_released(&connection.slot, STACK);
        slot::set_parked(&connection.slot, 1);
        connection
    }

    /// The direction that `side` writes.
    fn half(&self, side: usize) -> Half<'_> {
        Half::of(&self.slot, side, SIZE)
    }
}

/// The byte at a position of either direction.
fn byte(position: u64) -> u8 {
    position as u8
}

fn bytes(from: u64, n: usize) -> Vec<u8> {
    (from..).take(n).map(byte).collect()
}

/// The keeper is killed before its step `death`, and the standby begins anew. Meanwhile the program does `during`.
fn restored(name: &str, during: fn(&mut Program)) {
    // Real threads are no proof anyway.
    for death in (0..=STEPS).step_by(if cfg!(loom) { 1 } else { 6 }) {
        for is_acknowledged in [false, true] {
            explore(&format!("{name}, killed before step {death}"), 2, move || {
                let connection = Arc::new(Connection::new());
                let (mut program, mut ledger) = begin(&connection, is_acknowledged);
                let stack = {
                    let connection = connection.clone();
                    thread::spawn(move || {
                        if stack::restore(&connection, &mut ledger, Life::of(death)).is_err() {
                            assert!(death < STEPS, "more steps than that");
                            stack::restore(&connection, &mut ledger, Life::of(usize::MAX)).expect("it lives");
                        }
                        stack::leave(&connection);
                    })
                };
                during(&mut program);
                stack.join().unwrap();
                program.come_to_rest();
                program.check();
            });
        }
    }
}

/// The program and the record of a connection whose worker was killed. The worker has published one byte more to the program than the
/// ring says, and has sent the program's byte; `is_acknowledged`: the peer has it, and the worker has not released it.
fn begin(connection: &Arc<Connection>, is_acknowledged: bool) -> (Program, Ledger) {
    let mut program = Program::new(connection.clone());
    let ledger = stack::carry(connection, &mut program, is_acknowledged);
    program.read();
    (program, ledger)
}

/// Catches: a reason that is set before the restore, for a program that takes it for the end without a look at `parked`; a program that
/// sends what is left in its ring although it has waited for the stack in vain.
#[test]
fn a_program_writes_while_its_connection_is_restored() {
    restored("a_program_writes_while_its_connection_is_restored", |program| {
        program.write();
        program.demote();
        program.write();
    });
}

/// Catches: the same; a stack that says that the socket is back before it has sent the ring's bytes; a standby that does not ask the kernel how many bytes the keeper had sent from the ring (they come twice).
#[test]
fn a_program_reads_while_its_connection_is_restored() {
    restored("a_program_reads_while_its_connection_is_restored", |program| {
        program.read();
        program.write();
        program.demote();
        program.read();
    });
}
