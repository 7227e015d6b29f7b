//! The memory of one link: the pair of processes that share connections.
//!
//! ```text
//!  0        +-----------------------------+
//!           | Header                      |  4096 bytes, written once by the broker
//!  4096     +-----------------------------+
//!           | SideArea[2]                 |  which doorbells a side holds; Bell[PLACES] of that side
//!           +-----------------------------+
//!           | Slot[SLOTS]                 |  one per connection: indices, carriers, counters
//!           +-----------------------------+  page boundary
//!           | rings: slot 0 side 0, slot 0 side 1, slot 1 side 0, ...   each `ring_size` bytes
//!           +-----------------------------+
//! ```
//!
//! Any word may be written by the peer at any time. Readers load a word once and check it.
//! A direction is named by the side that writes it: direction 0 is written by side 0 and read by side 1.
//! Positions are bytes of that direction since the connection was made, whatever carried them.

use crate::sync::{AtomicU32, AtomicU64};

/// Connections in one link; a pair with more gets a further link.
pub const SLOTS: usize = 1024;
/// Words of a bitmap over the slots.
pub const WORDS: usize = SLOTS / 64;
/// Slots that have a bit in [`Bell::news`] itself: a pair of processes with few connections touches no other line.
pub const DIRECT: usize = 64 - WORDS;
/// Links of one process.
pub const LINKS: usize = 512;
/// Doorbells of one process: one bit each in [`Side::bells`].
pub const PLACES: usize = 64;

/// In [`Reader::head`]: the ring has ended at this position; the bytes after it travel by kernel.
pub const FROZEN: u64 = 1 << 63;
/// In [`Reader::head`]: the writer sends the unread bytes by kernel, too, from [`Writer::resume`] on. The reader goes on
/// reading the ring, and later discards from the kernel what it has had from the ring.
pub const COPYING: u64 = 1 << 62;
/// The position in [`Reader::head`].
pub const POSITION: u64 = COPYING - 1;
/// [`Reader::head`] of a slot that has never carried anything. Larger than any position.
pub const UNUSED: u64 = FROZEN | POSITION;

/// Start of the segment. Written by the broker before anyone else sees the memory.
#[repr(C, align(64))]
pub struct Header {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub slots: AtomicU32,
    /// Bytes of one ring, a power of two.
    pub ring_size: AtomicU32,
}

/// A doorbell: the place where a thread of this side waits (an epoll set, or one blocking call).
///
/// The producer sets the bits, then looks at `asleep`; the sleeper raises `asleep`, then looks at the bits.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Bell {
    /// Bit [`WORDS`]` + s`: slot s, one of the first [`DIRECT`], may have something new. Bit w below: `ready[w]` may be non-zero.
    pub news: AtomicU64,
    /// 1 while somebody sleeps here; whoever swaps it to 0 rings.
    pub asleep: AtomicU32,
    _pad: [u32; 13],
    /// Bit s: slot s, none of the first ones, may have something new. A hint, never the truth.
    pub ready: [AtomicU64; WORDS],
}

/// What belongs to one side of the link as a whole.
#[repr(C, align(64))]
pub struct SideArea {
    /// Bit p: this side has an eventfd in the doorbell of the *other* side's place p and will ring it.
    pub known: AtomicU64,
    _pad: [u64; 7],
    pub bells: [Bell; PLACES],
}

/// The writer's words of one direction: those of every write in the first line, those of a switch in the second.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Writer {
    /// Everything before this position is in the ring.
    pub tail: AtomicU64,
    /// Position whose byte lies at offset 0 of the ring (moved only while the ring is empty).
    pub base: AtomicU64,
    /// Where the present stretch of ring began.
    pub ring_from: AtomicU64,
    /// Number of the present stretch; 0: none yet. Written last.
    pub epoch: AtomicU32,
    /// 1: the writer waits for space.
    pub wants_space: AtomicU32,
    /// 1: an end (FIN) follows the published bytes; ask the kernel.
    pub fin: AtomicU32,
    /// Number of the last stretch that is complete: its tail does not move any more, and what follows travels by kernel.
    pub complete: AtomicU32,
    /// When this side last had news for the other one that it had not rung for, in ticks of the processor's clock. A hint.
    pub news_at: AtomicU64,
    _line: [u64; 2],
    /// With [`COPYING`]: position of the first byte that the kernel carries a copy of.
    pub resume: AtomicU64,
    /// Of a complete stretch: how many of its bytes the kernel carries, too. They come before what follows the stretch.
    pub copied: AtomicU64,
    /// Up to this position unread bytes of the stretch have been sent by kernel, by whoever did ([`Side::sends`]).
    pub sent_to: AtomicU64,
    _pad: [u64; 5],
}

/// The reader's word of one direction.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Reader {
    /// Everything before this position has been consumed; or [`FROZEN`].
    pub head: AtomicU64,
    _pad: [u64; 7],
}

/// What one side says of its end of the connection; changes rarely.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Side {
    /// Places of this side to ring when something happens.
    pub bells: AtomicU64,
    /// 1: this side reads rings, and every wait of its hears doorbells.
    pub ready: AtomicU32,
    /// The last stretch whose end this side, as a reader, has noticed.
    pub seen_epoch: AtomicU32,
    /// Counts freezes of the direction that this side reads, so that its writer looks at `head`.
    pub froze: AtomicU32,
    /// 1: this side has released the slot.
    pub released: AtomicU32,
    /// 1: somebody sends unread bytes of the direction that this side writes by kernel: this side, or the other one on its
    /// behalf.
    pub sends: AtomicU32,
    /// The socket's number in the process of this side.
    pub number: AtomicU32,
    /// 1: this side may wait in ways that hear no doorbell. No stretch of ring may begin, in either direction.
    pub away: AtomicU32,
    _pad: [u32; 7],
}

/// Counters of one side, for `status` only.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Counters {
    pub kernel_tx: AtomicU64,
    pub kernel_rx: AtomicU64,
    pub ring_tx: AtomicU64,
    pub ring_rx: AtomicU64,
    /// Last reason code of this side; 0: none.
    pub reason: AtomicU32,
    _pad: [u32; 7],
}

/// One connection.
#[repr(C, align(64))]
pub struct Slot {
    pub writer: [Writer; 2],
    pub reader: [Reader; 2],
    pub side: [Side; 2],
    pub counters: [Counters; 2],
    /// 1: written by the broker: no stretch of ring may begin.
    pub hold: AtomicU32,
    _pad: [u32; 15],
}

const PAGE: usize = 4096;
/// Offset of `SideArea[2]`.
pub const SIDES_AT: usize = PAGE;
/// Offset of `Slot[SLOTS]`.
pub const SLOTS_AT: usize = SIDES_AT + 2 * size_of::<SideArea>();
/// Offset of the first ring.
pub const RINGS_AT: usize = (SLOTS_AT + SLOTS * size_of::<Slot>()).next_multiple_of(PAGE);

/// Offset of the ring that `side` writes for `slot`.
pub const fn ring_at(ring_size: usize, slot: usize, side: usize) -> usize {
    RINGS_AT + (2 * slot + side) * ring_size
}

/// Bytes of a whole link.
pub const fn link_size(ring_size: usize) -> usize {
    ring_at(ring_size, SLOTS, 0)
}

// A model checker's atomics have other sizes; they never meet shared memory.
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() <= PAGE);
    assert!(size_of::<Bell>() == 64 + WORDS * 8 && align_of::<Bell>() == 64);
    assert!(size_of::<SideArea>() == 64 + PLACES * size_of::<Bell>());
    assert!(size_of::<Writer>() == 128 && size_of::<Reader>() == 64);
    assert!(core::mem::offset_of!(Writer, resume) == 64);
    assert!(size_of::<Side>() == 64 && size_of::<Counters>() == 64);
    assert!(size_of::<Slot>() == 11 * 64);
    assert!(SLOTS_AT.is_multiple_of(64) && RINGS_AT.is_multiple_of(PAGE));
};
