//! The shared words of one direction, for tests that play both of its ends.

use sidestep_abi::link::{Reader, Side, Writer};
use sidestep_conn::{Half, Read, Rx, Tx};
use sidestep_ring::slot;

pub const SIZE: usize = 16;

pub struct Words {
    pub writer: Writer,
    pub reader: Reader,
    pub side: Side,
    pub other: Side,
}

impl Words {
    pub fn new() -> Words {
        let words = Words {
            writer: Writer::default(),
            reader: Reader::default(),
            side: Side::default(),
            other: Side::default(),
        };
        slot::reset_reader(&words.reader);
        words.half().set_ready();
        words
    }

    pub fn half(&self) -> Half<'_> {
        Half {
            writer: &self.writer,
            reader: &self.reader,
            reading_side: &self.side,
            writing_side: &self.other,
            size: SIZE,
        }
    }

    /// Both ends at position 100, in a stretch that the reader has entered, with `n` unread bytes.
    pub fn with_unread(&self, n: usize) -> (Tx, Rx) {
        let (mut tx, mut rx) = (Tx::native(100), Rx::native(100));
        assert_eq!(tx.begin(self.half()), Ok(true));
        assert_eq!(rx.next(self.half()), Ok(Read::Ring(0)));
        tx.put_ring(self.half(), n).expect("space");
        (tx, rx)
    }
}
