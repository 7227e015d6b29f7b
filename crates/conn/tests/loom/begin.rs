//! A stretch that begins while the reader withdraws its readiness.

use crate::conn_direction::Direction;
use crate::engine::{Arc, explore, thread};
use crate::{SIZE, START, read, write};
use sidestep_conn::{Rx, Tx};

/// Either the writer sees that the reader is no longer ready, or the reader sees the stretch. Otherwise the stretch would wait
/// for a reader that never comes.
///
/// Catches: no fence in `Half::is_still_ready`; `Tx::begin` without `Half::is_still_ready`; no fence in the withdrawal.
#[test]
fn a_withdrawn_reader_gets_no_stretch() {
    explore("a_withdrawn_reader_gets_no_stretch", 5, || {
        let direction = Arc::new(Direction::new(SIZE));
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                let mut rx = Rx::native(START);
                direction.half().withdraw_readiness();
                rx.refuse(direction.half()).expect("no violation");
                (rx, direction.half().seen() == 1)
            })
        };
        let mut tx = Tx::native(START);
        let begun = direction.begin(&mut tx).expect("no violation");
        assert!(write(&direction, &mut tx));
        let (mut rx, refused) = reader.join().unwrap();
        assert!(!begun || refused, "the stretch has begun, and the reader does not know");
        assert!(!rx.in_ring());
        direction.drain(&mut tx, &mut rx);
        assert!(!tx.in_ring());
    });
}

/// The reader takes from the kernel only what is there already. The writer begins a stretch and ends it without copies. Either
/// the reader is in the ring, or the writer knows that it is not, and sends copies.
///
/// Catches: no fence in the withdrawal; a writer that leaves bytes to a reader that has not entered.
#[test]
fn a_reader_enters_ahead() {
    explore("a_reader_enters_ahead", 3, || {
        let direction = Arc::new(Direction::new(SIZE));
        let mut tx = Tx::native(START);
        assert!(write(&direction, &mut tx), "by kernel");
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                let mut rx = Rx::native(START);
                direction.half().withdraw_readiness();
                rx.enter_ahead(direction.half()).expect("no violation");
                read(&direction, &mut rx);
                read(&direction, &mut rx);
                rx
            })
        };
        direction.begin(&mut tx).expect("no violation");
        assert!(write(&direction, &mut tx));
        tx.end_without_copies(direction.half()).expect("no violation");
        assert!(write(&direction, &mut tx), "by kernel");
        let mut rx = reader.join().unwrap();
        direction.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + 3);
    });
}
