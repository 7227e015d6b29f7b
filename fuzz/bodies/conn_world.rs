//! One direction of a connection in one thread: a kernel queue, a ring, both ends, and everybody who may end a
//! stretch. The same world serves the random interleavings of proptest and the fuzzer.

use sidestep_abi::link::{FROZEN, Reader, Side, UNUSED, Writer};
use sidestep_abi::sync::Ordering::{Relaxed, SeqCst};
use sidestep_conn::{Advance, Half, Lie, Read, Rx, Tx, Write};
use std::collections::VecDeque;

/// Bytes of the ring.
pub const SIZE: usize = 16;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Write(usize),
    Read(usize),
    Begin,
    GiveBack,
    ReaderFreeze,
    BrokerFreeze,
    Refuse,
    /// The broker freezes between the next copy to or from the ring and its commit.
    Ambush,
    /// The reader no longer wants rings, or wants them again.
    Ready(bool),
    Look,
}

pub struct World {
    pub writer: Writer,
    pub reader: Reader,
    pub side: Side,
    pub tx: Tx,
    pub rx: Rx,
    ring: [u8; SIZE],
    kernel: VecDeque<u8>,
    ambush: bool,
}

/// The shared words of a world, without borrowing the rest of it.
macro_rules! half {
    ($world:expr) => {
        Half { writer: &$world.writer, reader: &$world.reader, reading_side: &$world.side, size: SIZE }
    };
}

impl World {
    pub fn new() -> World {
        let reader = Reader::default();
        reader.head.store(UNUSED, Relaxed);
        let side = Side::default();
        side.ready.store(1, Relaxed);
        World {
            writer: Writer::default(),
            reader,
            side,
            tx: Tx::default(),
            rx: Rx::default(),
            ring: [0; SIZE],
            kernel: VecDeque::new(),
            ambush: false,
        }
    }

    /// One step. Err: a lie was noticed, as the real library would; the connection is over.
    pub fn apply(&mut self, step: Step) -> Result<(), Lie> {
        let before = (self.tx.pos(), self.rx.pos());
        let result = self.make(step);
        assert!(self.tx.pos() >= before.0 && self.rx.pos() >= before.1, "a stream does not go back");
        result
    }

    fn make(&mut self, step: Step) -> Result<(), Lie> {
        match step {
            Step::Write(n) => self.write(n),
            Step::Read(n) => self.read(n).map(drop),
            Step::Begin => self.begin(),
            Step::GiveBack => self.tx.give_back(half!(self)),
            Step::ReaderFreeze => {
                self.rx.freeze(half!(self));
                self.hint()
            }
            Step::BrokerFreeze => self.broker_freeze(),
            Step::Ambush => {
                self.ambush = true;
                Ok(())
            }
            Step::Refuse if !self.rx.in_ring() => {
                self.rx.refuse(half!(self))?;
                self.hint()
            }
            Step::Refuse => Ok(()),
            Step::Ready(ready) => {
                self.side.ready.store(u32::from(ready), SeqCst);
                Ok(())
            }
            Step::Look => self.look(),
        }
    }

    fn begin(&mut self) -> Result<(), Lie> {
        if self.tx.may_begin(half!(self)) {
            self.tx.begin(half!(self))?;
        }
        Ok(())
    }

    fn broker_freeze(&self) -> Result<(), Lie> {
        self.reader.head.fetch_or(FROZEN, SeqCst);
        self.hint()
    }

    fn spring_ambush(&mut self) -> Result<(), Lie> {
        if core::mem::take(&mut self.ambush) { self.broker_freeze() } else { Ok(()) }
    }

    fn hint(&self) -> Result<(), Lie> {
        half!(self).hint_freeze();
        Ok(())
    }

    /// Writes `n` bytes, or as many as fit.
    fn write(&mut self, mut n: usize) -> Result<(), Lie> {
        while n > 0 {
            match self.tx.next(half!(self), n)? {
                Write::Kernel => {
                    self.kernel.push_back(byte(self.tx.pos()));
                    self.tx.put_kernel(1);
                    n -= 1;
                }
                Write::TakeBack { at, len } => self.take_back(at, len),
                Write::Ring(0) => return Ok(()),
                Write::Ring(space) => {
                    assert!(space <= SIZE, "more space than ring");
                    let part = n.min(space);
                    for i in 0..part {
                        self.ring[(self.tx.at() as usize + i) % SIZE] = byte(self.tx.pos() + i as u64);
                    }
                    self.spring_ambush()?;
                    self.tx.put_ring(half!(self), part)?;
                    n -= part;
                }
            }
        }
        Ok(())
    }

    fn take_back(&mut self, at: u64, len: usize) {
        assert!(len > 0 && len <= SIZE, "{len} bytes to take back from {SIZE}");
        self.kernel.push_back(self.ring[at as usize % SIZE]);
        self.tx.took_back(1);
    }

    /// What a woken writer does: it looks, and takes back.
    fn look(&mut self) -> Result<(), Lie> {
        self.tx.look(half!(self))?;
        while let Write::TakeBack { at, len } = self.tx.next(half!(self), 0)? {
            self.take_back(at, len);
        }
        Ok(())
    }

    /// Reads up to `max` bytes and checks them. How many.
    fn read(&mut self, max: usize) -> Result<usize, Lie> {
        match self.rx.next(half!(self))? {
            Read::Kernel(limit) => {
                let n = max.min(self.kernel.len()).min(limit.min(SIZE as u64) as usize);
                let got: Vec<u8> = self.kernel.drain(..n).collect();
                self.check(&got, "kernel");
                self.rx.took_kernel(n);
                Ok(n)
            }
            Read::Ring(n) => {
                assert!(n <= SIZE, "more bytes than ring");
                let n = n.min(max);
                let at = self.rx.at(half!(self)) as usize;
                let got: Vec<u8> = (0..n).map(|i| self.ring[at.wrapping_add(i) % SIZE]).collect();
                self.spring_ambush()?;
                let pos = self.rx.pos();
                if n == 0 || self.rx.took_ring(half!(self), n)? == Advance::Frozen {
                    return Ok(0);
                }
                assert_eq!(self.rx.pos(), pos + n as u64);
                self.check_at(pos, &got, "ring");
                Ok(n)
            }
        }
    }

    fn check(&self, got: &[u8], carrier: &str) {
        self.check_at(self.rx.pos(), got, carrier);
    }

    fn check_at(&self, pos: u64, got: &[u8], carrier: &str) {
        if self.side.released.load(Relaxed) != 0 {
            return; // a world of lies: which bytes come is the liar's business
        }
        assert!(got.iter().enumerate().all(|(i, b)| *b == byte(pos + i as u64)), "by {carrier} at {pos}");
    }

    /// From now on words may be anything, and so may the bytes that arrive.
    #[allow(dead_code)]
    pub fn distrust(&self) {
        self.side.released.store(1, Relaxed);
    }

    /// No more writing: everything must arrive.
    pub fn drain(&mut self) {
        for _ in 0..4 {
            self.look().expect("nobody lies");
            while self.read(7).expect("nobody lies") > 0 {}
        }
        assert_eq!(self.rx.pos(), self.tx.pos(), "all has arrived");
        assert_eq!((self.rx.kernel, self.rx.ring), (self.tx.kernel, self.tx.ring), "both ends count alike");
    }
}

/// The byte at a position: neighbours differ.
fn byte(pos: u64) -> u8 {
    (pos.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}
