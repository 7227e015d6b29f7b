//! One direction for the models: the shared words, and bytes whose visibility the checker tracks.

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use sidestep_abi::link::{Bell, Reader, UNUSED, Writer};
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_ring::{Advance, Input, Lie, Output, bell};

/// Bytes of the ring in every model.
pub const SIZE: usize = 2;
/// Where every stretch begins: not at 0, so that words not yet seen are not taken for good ones.
pub const START: u64 = 1;

/// The shared memory of one direction.
pub struct Direction {
    pub writer: Writer,
    pub reader: Reader,
    bytes: [UnsafeCell<u8>; SIZE],
}

impl Direction {
    pub fn new() -> Direction {
        let reader = Reader::default();
        reader.head.store(UNUSED, Relaxed);
        Direction { writer: Writer::default(), reader, bytes: core::array::from_fn(|_| UnsafeCell::new(0)) }
    }

    /// Both ends, in a stretch that has begun and that the reader has entered.
    pub fn entered(&self) -> (Output, Input) {
        let output = self.begun();
        let mut input = Input::at_position(START);
        let stretch = input.announced(&self.writer).expect("it has begun");
        assert_eq!(input.enter(&self.reader, stretch), Ok(true));
        (output, input)
    }

    /// The writer's end of a stretch that has begun.
    pub fn begun(&self) -> Output {
        let mut output = Output::default();
        output.begin(&self.writer, &self.reader, START).expect("a fresh direction");
        output
    }

    /// Writes and publishes the next byte: its value is its position.
    pub fn put(&self, output: &mut Output) {
        let (at, value) = (output.at() as usize % SIZE, output.tail as u8);
        // SAFETY: the checker makes sure that nobody else is there.
        self.bytes[at].with_mut(|byte| unsafe { *byte = value });
        output.publish(&self.writer, 1);
    }

    /// Reads the next byte of those that `available` has promised.
    pub fn get(&self, input: &mut Input) -> Result<Advance, Lie> {
        let at = input.at(&self.writer) as usize % SIZE;
        // SAFETY: the checker makes sure that nobody is writing there.
        let value = self.bytes[at].with(|byte| unsafe { *byte });
        let pos = input.pos;
        let result = input.advance(&self.reader, 1);
        if result == Ok(Advance::Done) {
            assert_eq!(value, pos as u8, "the byte at {pos}");
        }
        result
    }

    /// The bytes that the writer sends by kernel, `from..output.tail`, are still what they were.
    pub fn look_at_unread(&self, output: &Output, from: u64) {
        for pos in from..output.tail {
            // SAFETY: as in `get`.
            let value = self.bytes[(pos - output.base) as usize % SIZE].with(|byte| unsafe { *byte });
            assert_eq!(value, pos as u8, "unread at {pos}");
        }
    }

    /// Reads all there is; true if there was something.
    pub fn drain(&self, input: &mut Input) -> bool {
        let n = input.available(&self.writer, SIZE).expect("an honest writer");
        for _ in 0..n {
            assert_eq!(self.get(input), Ok(Advance::Done));
        }
        n > 0
    }
}

/// An eventfd: what is written before the wait is not lost.
pub struct Eventfd {
    written: Mutex<bool>,
    changed: Condvar,
}

impl Eventfd {
    pub fn write(&self) {
        *self.written.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub fn wait(&self) {
        let mut written = self.written.lock().unwrap();
        while !*written {
            written = self.changed.wait(written).unwrap();
        }
        *written = false;
    }
}

/// A doorbell with its eventfd.
pub struct Place {
    pub bell: Bell,
    pub eventfd: Eventfd,
}

impl Place {
    pub fn new() -> Place {
        let eventfd = Eventfd { written: Mutex::new(false), changed: Condvar::new() };
        Place { bell: Bell::default(), eventfd }
    }

    /// What a producer does after it has published.
    pub fn ring(&self, slot: usize) {
        if bell::ring(&self.bell, slot, || ()) {
            self.eventfd.write();
        }
    }
}
