//! One direction of a connection: shared words, a ring and the kernel's queue, and what either end does with them. The value
//! of each byte follows from its position, so that a reader sees at once what is lost, twice, or out of order.
#![allow(dead_code)] // each test uses its part

use super::engine::{Mutex, thread};
use super::memory::Memory;
use sidestep_abi::link::{Reader, Side, Writer};
use sidestep_conn::{Advance, Half, PeerViolation, Read, Rx, Tx, Write};
use sidestep_ring::slot;
use std::collections::VecDeque;

type Result<T> = std::result::Result<T, PeerViolation>;

pub struct Direction {
    pub writer: Writer,
    pub reader: Reader,
    pub reading_side: Side,
    pub writing_side: Side,
    memory: Memory,
    kernel: Mutex<VecDeque<u8>>,
    /// Words may be anything, and so may the bytes that arrive.
    is_hostile: bool,
}

impl Direction {
    /// A direction whose reader is ready for rings.
    pub fn new(size: usize) -> Direction {
        let direction = Direction {
            writer: Writer::default(),
            reader: Reader::default(),
            reading_side: Side::default(),
            writing_side: Side::default(),
            memory: Memory::new(size),
            kernel: Mutex::new(VecDeque::new()),
            is_hostile: false,
        };
        slot::reset_reader(&direction.reader);
        direction.half().set_ready();
        direction
    }

    /// The same, for a test that writes anything into its words.
    pub fn hostile(size: usize) -> Direction {
        Direction { is_hostile: true, ..Direction::new(size) }
    }

    pub fn half(&self) -> Half<'_> {
        Half {
            writer: &self.writer,
            reader: &self.reader,
            reading_side: &self.reading_side,
            writing_side: &self.writing_side,
            size: self.memory.size(),
        }
    }

    /// Begins a stretch if that may be. Whether it has begun.
    pub fn begin(&self, tx: &mut Tx) -> Result<bool> {
        if tx.may_begin(self.half()) { tx.begin(self.half()) } else { Ok(false) }
    }

    /// Writes `n` bytes, or as many as fit, each by the carrier of the moment. How many. `meanwhile` runs between each copy
    /// into the ring and its commit.
    pub fn write(&self, tx: &mut Tx, n: usize, mut meanwhile: impl FnMut()) -> Result<usize> {
        let mut left = n;
        while left > 0 {
            match tx.next(self.half(), left)? {
                Write::Kernel => {
                    self.kernel.lock().unwrap().push_back(byte(tx.pos()));
                    tx.put_kernel(1);
                    left -= 1;
                }
                Write::Unread { len, .. } => {
                    assert!(len > 0);
                    self.serve(tx, usize::MAX)?;
                    thread::yield_now(); // the reader may have claimed the sending
                }
                Write::Ring(0) => break,
                Write::Ring(space) => {
                    assert!(space <= self.memory.size(), "more space than ring");
                    let part = left.min(space);
                    let bytes: Vec<u8> = (0..part as u64).map(|i| byte(tx.pos() + i)).collect();
                    self.memory.put(tx.at(), &bytes);
                    meanwhile();
                    tx.put_ring(self.half(), part)?;
                    left -= part;
                }
            }
        }
        Ok(n - left)
    }

    /// What a woken writer does: it looks, and sends at most so many of the unread bytes by kernel, unless the reader just
    /// sends them.
    pub fn serve(&self, tx: &mut Tx, most: usize) -> Result<()> {
        tx.poll(self.half())?;
        if !tx.has_unsent() || !self.half().claim_sending() {
            return Ok(());
        }
        let result = tx.heed_deputy(self.half()).and_then(|()| self.send_unread(tx, most));
        self.half().has_sent();
        result
    }

    fn send_unread(&self, tx: &mut Tx, most: usize) -> Result<()> {
        for _ in 0..most {
            let Write::Unread { at, len } = tx.next(self.half(), 0)? else { break };
            assert!(len > 0 && len <= self.memory.size(), "{len} bytes unread");
            self.kernel.lock().unwrap().extend(self.memory.get(at, 1));
            tx.sent_unread(self.half(), 1);
        }
        Ok(())
    }

    /// What a reader that has left the ring does for a writer that does nothing: it sends at most so many bytes to itself.
    /// False: the writer just sends them.
    pub fn deputy(&self, rx: &mut Rx, most: usize) -> Result<bool> {
        if !self.half().claim_sending() {
            return Ok(false);
        }
        let unsent = rx.unsent(self.half());
        if let Ok((from, at, len)) = unsent {
            assert!(len <= self.memory.size(), "{len} bytes unsent");
            let bytes = self.memory.get(at, len.min(most));
            let sent_to = from.wrapping_add(bytes.len() as u64);
            self.kernel.lock().unwrap().extend(bytes);
            self.half().set_sent_to(sent_to);
        }
        self.half().has_sent();
        unsent.map(|_| true)
    }

    /// Discards copies, if there are some. A reader may do so at any time. Whether anything was done.
    pub fn discard(&self, rx: &mut Rx) -> Result<bool> {
        let queued = self.queued() as u64;
        let was_expected = rx.expects_copies();
        let n = rx.discardable(self.half(), queued)?;
        assert!(n <= queued);
        self.kernel.lock().unwrap().drain(..n as usize);
        rx.discarded(n);
        Ok(n > 0 || was_expected && !rx.expects_copies())
    }

    /// Reads up to `max` bytes of one carrier and checks them. How many. `meanwhile` runs between the copy out of the ring and
    /// its commit.
    pub fn read(&self, rx: &mut Rx, max: usize, meanwhile: impl FnOnce()) -> Result<usize> {
        loop {
            match rx.next(self.half())? {
                Read::Copies if self.discard(rx)? => {}
                Read::Copies => return Ok(0),
                Read::Kernel(limit) => {
                    let mut kernel = self.kernel.lock().unwrap();
                    let n = max.min(kernel.len()).min(limit.min(usize::MAX as u64) as usize);
                    let got: Vec<u8> = kernel.drain(..n).collect();
                    drop(kernel);
                    self.check(rx.pos(), &got, "kernel");
                    rx.took_kernel(n);
                    return Ok(n);
                }
                Read::Ring(there) => {
                    assert!(there <= self.memory.size(), "more bytes than ring");
                    let got = self.memory.get(rx.at(self.half()), there.min(max));
                    meanwhile();
                    let pos = rx.pos();
                    if got.is_empty() || rx.took_ring(self.half(), got.len())? == Advance::Frozen {
                        return Ok(0);
                    }
                    assert_eq!(rx.pos(), pos + got.len() as u64);
                    self.check(pos, &got, "ring");
                    return Ok(got.len());
                }
            }
        }
    }

    fn check(&self, pos: u64, got: &[u8], carrier: &str) {
        let is_right = || got.iter().zip(pos..).all(|(value, pos)| *value == byte(pos));
        assert!(self.is_hostile || is_right(), "by {carrier} at {pos}");
    }

    fn queued(&self) -> usize {
        self.kernel.lock().unwrap().len()
    }

    /// The reader reads on alone: everything must be there.
    pub fn read_all(&self, tx: &Tx, rx: &mut Rx) {
        while self.read(rx, 7, || ()).expect("no violation") > 0 {}
        assert_eq!(rx.pos(), tx.pos(), "all can be read");
    }

    /// Both ends have come to rest: everything must arrive.
    pub fn drain(&self, tx: &mut Tx, rx: &mut Rx) {
        for _ in 0..4 {
            self.serve(tx, usize::MAX).expect("no violation");
            while self.read(rx, 7, || ()).expect("no violation") > 0 {}
        }
        assert_eq!(rx.pos(), tx.pos(), "all has arrived");
        assert_eq!((rx.kernel + rx.ring, tx.kernel() + tx.ring), (rx.pos(), tx.pos()));
        assert!(rx.ring <= tx.ring, "a reader may leave a ring after its writer, and have copies for news");
        assert_eq!((rx.socket, self.queued()), (tx.socket, 0), "and nothing is left in the kernel");
    }
}

/// The byte at a position: neighbours differ.
fn byte(pos: u64) -> u8 {
    (pos.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}
