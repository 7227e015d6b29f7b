//! The bodies of `crates/conn/tests/pair.rs` in threads: a writer, a reader and a broker, or two ends that do both.

use crate::SIZE;
use crate::engine::{Arc, explore, thread};
use crate::pair_ends::{Receiver, Sender};
use crate::pair_steps::World;
use crate::pair_wire::Wire;
use sidestep_conn::{Course, Flip};

/// `room`: number of bytes that the kernel takes of one direction.
fn ends(room: usize) -> (Arc<Wire>, [Sender; 2], [Receiver; 2]) {
    (Arc::new(Wire::new(SIZE, room)), [0, 1].map(|side| Sender::new(side, Flip::NEVER)), [0, 1].map(Receiver::new))
}

/// The operator holds the connection while one end writes and the other reads. The bytes arrive whenever the writer sees the
/// hold, and the stretch ends at the writer's next look.
///
/// Catches: a hint before the hold; a writer that notes hints after it has looked at the hold, or that notes
/// them where it looks for space only.
#[test]
fn a_hold_beside_writer_and_reader() {
    explore("a_hold_beside_writer_and_reader", 2, || {
        let (wire, [mut sender, other], [idle, mut receiver]) = ends(SIZE);
        let reader = {
            let wire = wire.clone();
            thread::spawn(move || {
                receiver.read(&wire, 1);
                receiver.read(&wire, 1);
                receiver
            })
        };
        let broker = {
            let wire = wire.clone();
            thread::spawn(move || wire.hold(true))
        };
        sender.write(&wire, 1);
        sender.write(&wire, 1);
        broker.join().unwrap();
        sender.serve(&wire);
        assert_ne!(sender.course(), Course::Ring, "held, and hinted");
        let receiver = reader.join().unwrap();
        wire.hold(false);
        World::of(wire, [sender, other], [idle, receiver]).check_rest();
    });
}

/// Both ends write, read and shut down at the same time.
///
/// Catches: an end that is announced before the last bytes; copies for a peer that has ended its side.
#[test]
fn both_ends_shut_down() {
    explore("both_ends_shut_down", 2, || {
        let (wire, [mut here, mut there], [mut reads_here, mut reads_there]) = ends(SIZE);
        let peer = {
            let wire = wire.clone();
            thread::spawn(move || {
                there.write(&wire, 1);
                there.shut(&wire);
                reads_there.read(&wire, 1);
                (there, reads_there)
            })
        };
        here.write(&wire, 1);
        reads_here.read(&wire, 1);
        here.shut(&wire);
        let (there, reads_there) = peer.join().unwrap();
        World::of(wire, [here, there], [reads_here, reads_there]).check_rest();
    });
}

/// A reader leaves, and sends to itself, while its writer goes to the kernel for good and writes on.
///
/// Catches: a writer that goes on by kernel while the reader sends to itself what comes before; a claim that is not given back.
#[test]
fn a_reader_leaves_beside_a_return_for_good() {
    explore("a_reader_leaves_beside_a_return_for_good", 2, || {
        let (wire, [mut sender, other], [idle, mut receiver]) = ends(2 * SIZE);
        sender.write(&wire, 2);
        receiver.read(&wire, 1);
        let reader = {
            let wire = wire.clone();
            thread::spawn(move || {
                receiver.leave(&wire);
                receiver.deputise(&wire, 2);
                receiver
            })
        };
        sender.keep(&wire);
        sender.write(&wire, 1);
        let receiver = reader.join().unwrap();
        World::of(wire, [sender, other], [idle, receiver]).check_rest();
    });
}
