//! The bodies of `crates/conn/tests/pair.rs` in threads: a writer, a reader and a broker, or two ends that do both.

use crate::SIZE;
use crate::engine::{Arc, explore, thread};
use crate::pair_kernel::Kernel;
use crate::pair_receiver::Receiver;
use crate::pair_sender::Sender;
use crate::pair_steps::Step;
use crate::pair_wire::Wire;
use crate::pair_world::World;
use sidestep_conn::{Course, Flip};

/// `room`: number of bytes that the kernel takes of one direction.
fn ends(room: usize) -> (Arc<Wire>, [Sender; 2], [Receiver; 2]) {
    let wire = Wire::new(SIZE, Kernel::new(room, room));
    (Arc::new(wire), [0, 1].map(|side| Sender::new(side, Flip::NEVER)), [0, 1].map(Receiver::new))
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
        sender.write(&wire, 1).unwrap();
        sender.write(&wire, 1).unwrap();
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
                there.write(&wire, 1).unwrap();
                there.shut(&wire);
                reads_there.read(&wire, 1);
                (there, reads_there)
            })
        };
        here.write(&wire, 1).unwrap();
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
    leaves_beside_a_return("a_reader_leaves_beside_a_return_for_good", 2 * SIZE, 1);
}

/// The same; the kernel takes one byte, and the writer leaves the rest to a reader in the ring.
///
/// Catches: a mark that is set, for a moment, on a stretch that the reader has left; a reader that leaves without a look at the mark.
#[test]
fn a_reader_leaves_while_its_writer_leaves_bytes_to_it() {
    leaves_beside_a_return("a_reader_leaves_while_its_writer_leaves_bytes_to_it", 1, 0);
}

/// `read`: how many of two bytes the reader reads before it leaves.
fn leaves_beside_a_return(name: &'static str, room: usize, read: usize) {
    explore(name, 2, move || {
        let (wire, [mut sender, other], [idle, mut receiver]) = ends(room);
        sender.write(&wire, 2).unwrap();
        for _ in 0..read {
            receiver.read(&wire, 1);
        }
        let reader = {
            let wire = wire.clone();
            thread::spawn(move || {
                receiver.leave(&wire);
                receiver.deputise(&wire, 2);
                receiver
            })
        };
        sender.keep(&wire);
        sender.write(&wire, 1).unwrap();
        let receiver = reader.join().unwrap();
        World::of(wire, [sender, other], [idle, receiver]).check_rest();
    });
}

/// The process of a writer is killed, and its socket resets the connection: what it has written comes before the reset.
///
/// Catches: a reset that is told before bytes of the ring; bytes after it.
#[test]
fn a_killed_writer_resets_beside_its_reader() {
    explore("a_killed_writer_resets_beside_its_reader", 2, || {
        let (wire, [mut sender, other], [idle, mut receiver]) = ends(SIZE);
        sender.write(&wire, 1).unwrap();
        let reader = {
            let wire = wire.clone();
            thread::spawn(move || {
                receiver.read(&wire, 1);
                receiver.read(&wire, 1);
                receiver
            })
        };
        sender.write(&wire, 1).unwrap();
        wire.call(|kernel| kernel.set_lingers(0));
        let mut world = World::of(wire.clone(), [sender, other], [idle, Receiver::new(1)]);
        world.apply(Step::Die(0));
        world.receivers[1] = reader.join().unwrap();
        world.check_rest();
        assert_eq!(world.receivers[1].rx.pos(), 2, "what was written before the reset");
        assert!(world.receivers[1].has_failed, "the reset");
    });
}

/// Somebody between the two ends resets the connection while one writes and the other reads.
///
/// Catches: bytes after the reset; a writer that goes on.
#[test]
fn a_reset_beside_writer_and_reader() {
    explore("a_reset_beside_writer_and_reader", 2, || {
        let (wire, [mut sender, other], [idle, mut receiver]) = ends(SIZE);
        let reader = {
            let wire = wire.clone();
            thread::spawn(move || {
                receiver.read(&wire, 1);
                receiver.read(&wire, 1);
                receiver.read(&wire, 1);
                receiver
            })
        };
        let between = {
            let wire = wire.clone();
            thread::spawn(move || wire.call(Kernel::cut))
        };
        let _ = sender.write(&wire, 1);
        let _ = sender.write(&wire, 1);
        between.join().unwrap();
        let receiver = reader.join().unwrap();
        World::of(wire, [sender, other], [idle, receiver]).check_end();
    });
}

/// A reader shuts both ways beside its writer. What it could have read before that it can read after it.
///
/// Catches: copies for a kernel that takes none; a ring that its reader does not enter.
#[test]
fn a_reader_shuts_both_ways_beside_its_writer() {
    explore("a_reader_shuts_both_ways_beside_its_writer", 2, || {
        let (wire, [mut sender, mut other], [idle, mut receiver]) = ends(2 * SIZE);
        sender.write(&wire, 1).unwrap();
        let reader = {
            let wire = wire.clone();
            thread::spawn(move || {
                receiver.is_deaf = true;
                other.begin_to_shut();
                other.end_stream(&wire, Some(&mut receiver));
                wire.call(|kernel| kernel.shut(1, true));
                receiver.read(&wire, 1);
                (other, receiver)
            })
        };
        let _ = sender.write(&wire, 1);
        let (other, receiver) = reader.join().unwrap();
        let mut world = World::of(wire, [sender, other], [idle, receiver]);
        world.check_rest();
        assert!(world.receivers[1].rx.pos() >= 1, "what was written before");
    });
}

/// A writer whose program has shut its reading side writes while the reader has left the ring and sends to itself.
///
/// Catches: a writer that takes its own shutdown for the end of its reader.
#[test]
fn a_deaf_writer_beside_a_reader_that_leaves() {
    explore("a_deaf_writer_beside_a_reader_that_leaves", 2, || {
        let (wire, [mut sender, other], [mut deaf, mut receiver]) = ends(2 * SIZE);
        deaf.is_deaf = true;
        wire.call(|kernel| kernel.shut_read(0));
        sender.write(&wire, 2).unwrap();
        receiver.read(&wire, 1);
        let reader = {
            let wire = wire.clone();
            thread::spawn(move || {
                receiver.leave(&wire);
                receiver.deputise(&wire, 2);
                receiver
            })
        };
        sender.write(&wire, 1).unwrap();
        sender.write(&wire, 1).unwrap();
        let receiver = reader.join().unwrap();
        World::of(wire, [sender, other], [deaf, receiver]).check_rest();
    });
}
