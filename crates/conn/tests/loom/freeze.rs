//! A reader that ends a stretch knows which bytes will still come by kernel.

use crate::conn_direction::Direction;
use crate::engine::{Arc, explore, thread};
use crate::{SIZE, START, read, write};
use sidestep_conn::{Half, Rx, Tx};

/// Either the reader sees the published byte (and may wait for it), or the writer sees that the stretch has ended, and sends
/// the byte by kernel in the same call. If the writer goes on without seeing that, there is a hint for it.
///
/// Catches: a hint before the freeze (the writer may look between them, and never again); no fence in `publish`;
/// `put_ring` that does not look for a freeze; no fence after the hint.
#[test]
fn a_byte_is_expected_or_sent_by_kernel() {
    explore("a_byte_is_expected_or_sent_by_kernel", 5, || {
        let direction = Arc::new(Direction::new(SIZE));
        let (mut tx, mut rx) = (Tx::native(START), Rx::native(START));
        assert!(tx.begin(direction.half()).expect("no violation"));
        assert!(!read(&direction, &mut rx) && rx.in_ring());
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                rx.freeze(direction.half()).expect("no violation");
                direction.half().hint_freeze();
                (rx, direction.half().tail())
            })
        };
        assert!(write(&direction, &mut tx));
        let unaware = tx.in_ring();
        let (mut rx, expected) = reader.join().unwrap();
        assert!(!unaware || expected == tx.pos(), "a byte that nobody knows of");
        assert!(!unaware || tx.asked_back(direction.half()), "a writer that nobody has told");
        direction.drain(&mut tx, &mut rx);
    });
}

/// The kernel takes no copy of the last byte. So the writer leaves it in the ring while the reader leaves that ring. Afterwards both
/// agree: the byte is in the ring, and the reader, too, or the writer sends it.
///
/// Catches: a mark of bytes that stay in the ring which is taken back only after the stretch is complete.
#[test]
fn the_last_byte_stays_in_the_ring_or_is_sent() {
    ends_beside_a_freeze("the_last_byte_stays_in_the_ring_or_is_sent", true, |tx, half| {
        tx.leave_in_ring(half).expect("no violation");
    });
}

/// The same without copies.
///
/// Catches: a mark that is set only after the stretch is complete.
#[test]
fn the_last_byte_stays_in_the_ring_or_is_unsent() {
    ends_beside_a_freeze("the_last_byte_stays_in_the_ring_or_is_unsent", false, |tx, half| {
        tx.end_in_ring(half).expect("no violation");
    });
}

/// `copies`: whether the writer had begun to send copies.
fn ends_beside_a_freeze(name: &'static str, copies: bool, end: fn(&mut Tx, Half)) {
    explore(name, 5, move || {
        let direction = Arc::new(Direction::new(SIZE));
        let (mut tx, mut rx) = (Tx::native(START), Rx::native(START));
        assert!(tx.begin(direction.half()).expect("no violation"));
        assert!(!read(&direction, &mut rx) && rx.in_ring());
        assert!(write(&direction, &mut tx));
        if copies {
            tx.end(direction.half()).expect("no violation");
            assert!(tx.has_unsent());
        }
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                rx.freeze(direction.half()).expect("no violation");
                rx
            })
        };
        end(&mut tx, direction.half());
        let mut rx = reader.join().unwrap();
        assert_ne!(tx.has_unsent(), rx.in_ring(), "one carrier has the byte");
        direction.drain(&mut tx, &mut rx);
    });
}
