//! One direction of a connection for the models: shared words, a ring whose bytes the checker tracks, and the
//! kernel's queue.

use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;
use sidestep_abi::link::{Reader, Side, UNUSED, Writer};
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_conn::{Advance, Half, Read, Rx, Tx, Write};
use std::collections::VecDeque;

/// Bytes of the ring.
pub const SIZE: usize = 2;
/// Position at which the connection was attached: not 0, so that words not yet seen are not taken for good ones.
pub const START: u64 = 1;

pub struct World {
    pub writer: Writer,
    pub reader: Reader,
    pub side: Side,
    pub other: Side,
    bytes: [UnsafeCell<u8>; SIZE],
    kernel: Mutex<VecDeque<u8>>,
}

impl World {
    /// A direction whose reader is ready for rings.
    pub fn new() -> World {
        let reader = Reader::default();
        reader.head.store(UNUSED, Relaxed);
        let side = Side::default();
        side.ready.store(1, Relaxed);
        let bytes = core::array::from_fn(|_| UnsafeCell::new(0));
        World {
            writer: Writer::default(),
            reader,
            side,
            other: Side::default(),
            bytes,
            kernel: Mutex::new(VecDeque::new()),
        }
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

    /// Writes one byte, whose value is its position, by whatever carries now. False: the ring is full.
    pub fn write(&self, tx: &mut Tx) -> bool {
        loop {
            match tx.next(self.half(), 1).expect("nobody lies") {
                Write::Ring(0) => return false,
                Write::Ring(_) => {
                    let (at, value) = (tx.at() as usize % SIZE, tx.pos() as u8);
                    // SAFETY: the checker makes sure that nobody else is there.
                    self.bytes[at].with_mut(|byte| unsafe { *byte = value });
                    tx.put_ring(self.half(), 1).expect("nobody lies");
                    return true;
                }
                Write::Kernel => {
                    self.kernel.lock().unwrap().push_back(tx.pos() as u8);
                    tx.put_kernel(1);
                    return true;
                }
                Write::Unread { len, .. } => {
                    assert!(len > 0);
                    self.serve(tx);
                    thread::yield_now();
                }
            }
        }
    }

    fn send_unread(&self, tx: &mut Tx, at: u64) {
        // SAFETY: as above; only the writer writes here.
        let byte = self.bytes[at as usize % SIZE].with(|byte| unsafe { *byte });
        self.kernel.lock().unwrap().push_back(byte);
        tx.sent_unread(self.half(), 1);
    }

    /// What a woken writer does: it looks, and sends what the reader is to get by kernel, unless the reader just does.
    pub fn serve(&self, tx: &mut Tx) {
        tx.look(self.half()).expect("nobody lies");
        if !tx.has_unsent() || !self.half().claim_sending() {
            return;
        }
        tx.heed_deputy(self.half()).expect("nobody lies");
        while let Write::Unread { at, .. } = tx.next(self.half(), 0).expect("nobody lies") {
            self.send_unread(tx, at);
        }
        self.half().has_sent();
    }

    /// What a reader that has left the ring does for a writer that does nothing.
    pub fn deputy(&self, rx: &mut Rx) {
        if !self.half().claim_sending() {
            return;
        }
        let (from, at, len) = rx.unsent(self.half()).expect("nobody lies");
        for i in 0..len as u64 {
            // SAFETY: as above; nobody writes into a ring that its reader has left.
            let byte = self.bytes[(at + i) as usize % SIZE].with(|byte| unsafe { *byte });
            self.kernel.lock().unwrap().push_back(byte);
        }
        rx.sent_to(self.half(), from + len as u64);
        self.half().has_sent();
    }

    /// Reads one byte if there is one, and checks it. False: nothing was read.
    pub fn read(&self, rx: &mut Rx) -> bool {
        while rx.next(self.half()).expect("nobody lies") == Read::Copies {
            if !self.discard(rx) {
                return false;
            }
        }
        let pos = rx.pos();
        let got = match rx.next(self.half()).expect("nobody lies") {
            Read::Copies => None,
            Read::Ring(0) | Read::Kernel(0) => None,
            Read::Kernel(_) => {
                let byte = self.kernel.lock().unwrap().pop_front();
                byte.inspect(|_| rx.took_kernel(1))
            }
            Read::Ring(_) => {
                let at = rx.at(self.half()) as usize % SIZE;
                // SAFETY: the checker makes sure that nobody is writing there.
                let byte = self.bytes[at].with(|byte| unsafe { *byte });
                let result = rx.took_ring(self.half(), 1).expect("nobody lies");
                (result == Advance::Done).then_some(byte)
            }
        };
        got.inspect(|byte| assert_eq!(*byte, pos as u8, "the byte at {pos}")).is_some()
    }

    /// Discards copies, if there are some. A reader may do so at any time.
    pub fn discard(&self, rx: &mut Rx) -> bool {
        let queued = self.kernel.lock().unwrap().len() as u64;
        let was = rx.expects_copies();
        let n = rx.discardable(self.half(), queued).expect("nobody lies");
        self.kernel.lock().unwrap().drain(..n as usize);
        rx.discarded(n);
        n > 0 || was && !rx.expects_copies()
    }

    /// Both ends have come to rest: everything must arrive.
    pub fn drain(&self, tx: &mut Tx, rx: &mut Rx) {
        for _ in 0..3 {
            self.serve(tx);
            while self.read(rx) {}
        }
        assert_eq!(rx.pos(), tx.pos(), "all has arrived");
        assert_eq!((rx.kernel + rx.ring, tx.kernel() + tx.ring), (rx.pos(), tx.pos()));
        assert!(rx.ring <= tx.ring, "a reader may leave a ring after its writer, and have copies for news");
        assert_eq!(rx.socket, tx.socket, "and nothing is left in the kernel");
    }
}
