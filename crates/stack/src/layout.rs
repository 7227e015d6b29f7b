//! Where what lies in a record.

use sidestep_tcp::Progress;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The words of a record. All bytes zero: free.
#[repr(C, align(64))]
pub struct Words {
    /// [`crate::record::Stage`].
    pub stage: AtomicU32,
    /// The thread that makes calls on the socket; 0: none.
    pub caller: AtomicU32,
    pub progress: [AtomicU64; Progress::WORDS],
    /// Position up to which the program's bytes are released; the last one may not be stored yet.
    pub released: AtomicU64,
    /// Position up to which the program can read; likewise.
    pub published: AtomicU64,
    pub given: [AtomicU64; 2],
    /// [`sidestep_repair::Buffers`].
    pub buffers: [AtomicU64; 2],
    /// One more than the position from which bytes of the program's ring are being sent by kernel (0: none are), and how many bytes the
    /// kernel had got before.
    pub sending: [AtomicU64; 2],
}

/// Offsets of the other parts of a record ([`crate::record`]).
pub const ENDS: usize = 256;
pub const SAVED: usize = 512;
pub const KEPT: usize = 1024;
/// Where the bytes of the kernel's send queue begin.
pub const QUEUE: usize = 4096;
/// A connection with more bytes in the kernel's send queue is not taken.
pub const QUEUE_ROOM: usize = 64 << 10;
/// Bytes of a record. Pages that are not used take no memory.
pub const SIZE: usize = QUEUE + QUEUE_ROOM;

const _: () = assert!(size_of::<Words>() <= ENDS);

/// Bytes of the part at this offset.
pub fn room(at: usize) -> usize {
    [ENDS, SAVED, KEPT, QUEUE].windows(2).find(|pair| pair[0] == at).map_or(0, |pair| pair[1] - pair[0])
}
