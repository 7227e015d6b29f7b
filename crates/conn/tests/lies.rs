//! A peer that moves the reader's own word. Waits take a look at that word for bytes that are there; a reader that did
//! not find them would be sent to look again for ever.
#![cfg(not(loom))]

use sidestep_abi::link::{FROZEN, Reader, Side, UNUSED, Writer};
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_conn::{Half, Lie, Read, Rx, Tx};

const SIZE: usize = 16;

struct Words {
    writer: Writer,
    reader: Reader,
    side: Side,
}

impl Words {
    fn new() -> Words {
        let words = Words { writer: Writer::default(), reader: Reader::default(), side: Side::default() };
        words.reader.head.store(UNUSED, Relaxed);
        words.side.ready.store(1, Relaxed);
        words
    }

    fn half(&self) -> Half<'_> {
        Half { writer: &self.writer, reader: &self.reader, reading_side: &self.side, size: SIZE }
    }

    /// A reader at 100, in a stretch, with `n` bytes unread in it.
    fn reader(&self, n: usize) -> Rx {
        let (mut tx, mut rx) = (Tx::native(100), Rx::native(100));
        assert_eq!(tx.begin(self.half()), Ok(true));
        assert_eq!(rx.next(self.half()), Ok(Read::Ring(0)));
        tx.put_ring(self.half(), n).expect("space");
        rx
    }
}

#[test]
fn a_head_that_somebody_else_moved_is_a_lie() {
    for head in [0, 99, 101, FROZEN - 1] {
        for bit in [0, FROZEN] {
            let words = Words::new();
            let mut rx = words.reader(0);
            words.reader.head.store(head | bit, Relaxed);
            assert_eq!(rx.next(words.half()), Err(Lie), "{head:#x} {bit:#x}");
        }
    }
}

#[test]
fn a_head_that_is_thawed_between_stretches_is_a_lie() {
    let words = Words::new();
    let mut fresh = Rx::native(100);
    words.reader.head.store(100, Relaxed);
    assert_eq!(fresh.next(words.half()), Err(Lie), "before any stretch");
    let words = Words::new();
    let mut rx = words.reader(0);
    words.reader.head.fetch_or(FROZEN, Relaxed);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    words.reader.head.fetch_and(!FROZEN, Relaxed);
    assert_eq!(rx.next(words.half()), Err(Lie), "after one");
}

#[test]
fn nobody_waits_for_more_than_a_ring_holds() {
    for (tail, coming) in [(105, 5), (100 + SIZE as u64, SIZE as u64), (101 + SIZE as u64, 0), (99, 0), (u64::MAX, 0)] {
        let words = Words::new();
        let mut rx = words.reader(5);
        words.writer.tail.store(tail, Relaxed);
        words.reader.head.fetch_or(FROZEN, Relaxed);
        assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
        assert_eq!(rx.on_its_way(), coming, "{tail:#x}");
    }
}
