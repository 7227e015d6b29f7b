//! What the program of each end would have seen if the kernel had carried every byte: the same calls on a kernel that has room for
//! all of them.
#![allow(dead_code)] // each engine uses its part

use super::pair_kernel::{Error, Kernel, Received, Sent};
use super::pair_receiver::Got;

/// What else is known of an end that has read.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Nothing can be read now, by any carrier.
    pub is_empty: bool,
    /// shutdown was called at this end, in either direction.
    pub is_shut: bool,
}

pub struct Plain {
    kernel: Kernel,
    /// The connection was reset before everything had arrived at this end, and the rest is lost.
    has_lost: [bool; 2],
    /// The peer was killed with bytes of this end unread in a ring, of which the peer's kernel knows nothing. The library resets
    /// the connection when it finds out, and tells the program.
    owes_reset: [bool; 2],
    was_killed: [bool; 2],
}

impl Plain {
    pub fn new() -> Plain {
        Plain {
            kernel: Kernel::new(usize::MAX, usize::MAX),
            has_lost: [false; 2],
            owes_reset: [false; 2],
            was_killed: [false; 2],
        }
    }

    pub fn kernel(&mut self) -> &mut Kernel {
        &mut self.kernel
    }

    /// `side` has written.
    pub fn wrote(&mut self, side: usize, result: Result<usize, Error>) {
        match result {
            Ok(0) => assert!(!self.kernel.is_reset(side), "side {side} waits for space after a reset"),
            Ok(n) => {
                let plain = self.kernel.send(side, &vec![0; n]);
                assert_eq!(plain, Sent::Some(n), "side {side} writes");
            }
            Err(error) => {
                if self.was_killed[1 - side] && !self.kernel.is_reset(side) {
                    self.kernel.abort(1 - side);
                }
                assert!(self.kernel.is_reset(side), "side {side} writes: {error:?}");
                assert_eq!(Sent::Fails(error), self.kernel.send(side, &[0]), "side {side} writes");
            }
        }
    }

    /// `side` has read.
    pub fn read(&mut self, side: usize, got: Got, reader: Reader) {
        match got {
            Got::Nothing => {}
            Got::Bytes(n) => {
                assert!(!self.has_lost[side], "side {side} reads {n} bytes after the end");
                let plain = self.kernel.receive(side, n);
                assert!(
                    matches!(&plain, Received::Bytes(there) if there.len() == n),
                    "side {side} reads {n}: {plain:?}"
                );
            }
            Got::End if self.kernel.queued(side) > 0 && !self.kernel.is_reset(side) => {
                assert!(self.is_deaf(side) && reader.is_empty, "side {side} reads the end before the last byte");
            }
            Got::End | Got::Fails(_) => {
                if self.kernel.queued(side) > 0 {
                    assert!(self.kernel.is_reset(side), "side {side} reads {got:?} before the last byte");
                    self.has_lost[side] = true;
                    self.kernel.receive(side, usize::MAX);
                }
                assert_eq!(got, self.end(side, reader), "side {side} reads");
            }
        }
    }

    fn is_deaf(&self, side: usize) -> bool {
        self.kernel.is_deaf(side)
    }

    /// What `side` reads now that all bytes have been read.
    fn end(&mut self, side: usize, reader: Reader) -> Got {
        let plain = match self.kernel.peek(side, 1) {
            Received::Bytes(bytes) => Got::Bytes(bytes.len()),
            Received::Nothing => Got::Nothing,
            Received::End => Got::End,
            Received::Fails(error) => Got::Fails(error),
        };
        let is_told = plain == Got::End && !reader.is_shut && core::mem::take(&mut self.owes_reset[side]);
        if is_told { Got::Fails(Error::Reset) } else { plain }
    }

    /// Nothing changes any more, and `side` has read everything that comes. `last`: what it read last.
    pub fn check_rest(&mut self, side: usize, last: Got, reader: Reader) {
        assert!(self.has_lost[side] || self.kernel.queued(side) == 0, "something never arrives at side {side}");
        assert_eq!(last, self.end(side, reader), "side {side} reads in the end");
    }

    /// The process of `side` dies. `has_unread`: its kernel has bytes that were not read; `unread_in_ring`: a ring has such bytes.
    pub fn die(&mut self, side: usize, has_unread: bool, is_told: bool) {
        let has_plain = self.kernel.queued(side) > 0;
        match (has_unread, has_plain) {
            _ if self.kernel.lingers(side) || self.kernel.is_reset(1 - side) => self.kernel.close(side),
            (false, true) => {
                self.kernel.receive(side, usize::MAX);
                self.kernel.close(side);
                self.owes_reset[1 - side] = is_told;
                self.was_killed[side] = true;
            }
            // Its kernel has copies of bytes that it had read in the ring.
            (true, false) => {
                self.kernel.abort(side);
                self.kernel.close(side);
            }
            _ => self.kernel.close(side),
        }
    }
}
