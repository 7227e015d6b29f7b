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
    /// The writer ends the stretch.
    End,
    /// The same without copies for a reader that is in the ring. What it leaves there then is lost.
    #[allow(dead_code)]
    EndAlone,
    /// The reader takes nothing more from the kernel than what it has there.
    EnterAhead,
    ReaderFreeze,
    BrokerFreeze,
    Refuse,
    /// The broker freezes between the next copy to or from the ring and its commit.
    Ambush,
    /// The reader no longer wants rings, or wants them again.
    Ready(bool),
    /// The writer looks, and the kernel takes at most so many bytes from it.
    Look(usize),
    Discard,
    /// The reader, which has left the ring, sends at most so many bytes to itself on the writer's behalf.
    Deputy(usize),
}

impl Step {
    /// The reader, or the broker on its behalf, leaves the ring.
    #[allow(dead_code)]
    pub fn is_leaving(&self) -> bool {
        matches!(self, Step::ReaderFreeze | Step::BrokerFreeze | Step::Refuse | Step::Ambush)
    }
}

pub struct World {
    pub writer: Writer,
    pub reader: Reader,
    pub side: Side,
    pub other: Side,
    pub tx: Tx,
    pub rx: Rx,
    ring: [u8; SIZE],
    kernel: VecDeque<u8>,
    ambush: bool,
}

/// The shared words of a world, without borrowing the rest of it.
macro_rules! half {
    ($world:expr) => {
        Half {
            writer: &$world.writer,
            reader: &$world.reader,
            reading_side: &$world.side,
            writing_side: &$world.other,
            size: SIZE,
        }
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
            other: Side::default(),
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
            Step::End => self.tx.end(half!(self)),
            Step::EndAlone => self.tx.end_without_copies(half!(self)),
            Step::EnterAhead => {
                half!(self).withdraw_readiness();
                self.rx.enter_ahead(half!(self))
            }
            Step::ReaderFreeze => {
                self.rx.freeze(half!(self))?;
                self.hint()
            }
            Step::Discard => self.discard().map(drop),
            Step::Deputy(most) => self.deputy(most),
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
            Step::Look(most) => self.look(most),
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
                Write::Unread { .. } => self.look(1)?,
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

    fn send_unread(&mut self, at: u64, len: usize) {
        assert!(len > 0 && len <= SIZE, "{len} bytes unread of {SIZE}");
        self.kernel.push_back(self.ring[at as usize % SIZE]);
        self.tx.sent_unread(half!(self), 1);
    }

    /// What a woken writer does: it looks, and sends at most so many of the unread bytes by kernel.
    fn look(&mut self, mut most: usize) -> Result<(), Lie> {
        self.tx.look(half!(self))?;
        self.tx.heed_deputy(half!(self))?;
        while let Write::Unread { at, len } = self.tx.next(half!(self), 0)? {
            if most == 0 {
                return Ok(());
            }
            self.send_unread(at, len);
            most -= 1;
        }
        Ok(())
    }

    fn deputy(&mut self, most: usize) -> Result<(), Lie> {
        assert!(half!(self).claim_sending(), "in one thread");
        let unsent = self.rx.unsent(half!(self));
        if let Ok((from, at, len)) = unsent {
            assert!(len <= SIZE, "{len} bytes unsent of {SIZE}");
            let n = len.min(most);
            for i in 0..n {
                self.kernel.push_back(self.ring[at.wrapping_add(i as u64) as usize % SIZE]);
            }
            self.rx.sent_to(half!(self), from.wrapping_add(n as u64));
        }
        half!(self).has_sent();
        unsent.map(drop)
    }

    /// Discards copies, if there are some: allowed at any time. Whether anything was done.
    fn discard(&mut self) -> Result<bool, Lie> {
        let (queued, expected) = (self.kernel.len() as u64, self.rx.expects_copies());
        let n = self.rx.discardable(half!(self), queued)?;
        assert!(n <= queued);
        self.kernel.drain(..n as usize);
        self.rx.discarded(n);
        Ok(n > 0 || expected && !self.rx.expects_copies())
    }

    /// Reads up to `max` bytes and checks them. How many.
    fn read(&mut self, max: usize) -> Result<usize, Lie> {
        match self.rx.next(half!(self))? {
            Read::Copies => {
                if self.discard()? {
                    self.read(max)
                } else {
                    Ok(0)
                }
            }
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

    /// The reader reads on alone: everything must be there.
    #[allow(dead_code)]
    pub fn read_all(&mut self) {
        while self.read(7).expect("nobody lies") > 0 {}
        assert_eq!(self.rx.pos(), self.tx.pos(), "all can be read");
    }

    /// No more writing: everything must arrive.
    pub fn drain(&mut self) {
        for _ in 0..4 {
            self.look(usize::MAX).expect("nobody lies");
            while self.read(7).expect("nobody lies") > 0 {}
        }
        assert_eq!(self.rx.pos(), self.tx.pos(), "all has arrived");
        assert_eq!((self.rx.kernel + self.rx.ring, self.tx.kernel() + self.tx.ring), (self.rx.pos(), self.tx.pos()));
        assert!(self.rx.ring <= self.tx.ring, "a reader may leave a ring after its writer, and have copies for news");
        assert_eq!((self.rx.socket, self.kernel.len()), (self.tx.socket, 0), "nothing is left in the kernel");
    }
}

/// The byte at a position: neighbours differ.
fn byte(pos: u64) -> u8 {
    (pos.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}
