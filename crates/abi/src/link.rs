//! The memory of one link. A link belongs to one pair of processes and holds their shared connections.
//!
//! ```text
//!  0        +-----------------------------+
//!           | Header                      |  4096 bytes, written once by the broker
//!  4096     +-----------------------------+
//!           | SideArea[2]                 |  which doorbells a side can ring; Doorbell[PLACES] of that side
//!           +-----------------------------+
//!           | Slot[SLOTS]                 |  one per connection: indices, carriers, counters
//!           +-----------------------------+  page boundary
//!           | rings: slot 0 side 0, slot 0 side 1, slot 1 side 0, ...   each `ring_size` bytes
//!           +-----------------------------+
//! ```
//!
//! The peer may write any word at any time. A reader loads a word once and checks it.
//! A direction has the number of the side that writes it: side 0 writes direction 0, and side 1 reads it.
//! A position counts the bytes of a direction since the connection was made, by ring and by kernel.
//!
//! This module has the layout only. `sidestep-ring` has every function that reads or writes a word of it.

use crate::sync::{AtomicU32, AtomicU64};

/// Connections in one link. A pair of processes with more connections gets a further link.
pub const SLOTS: usize = 1024;
/// Words of a bitmap over the slots.
pub const WORDS: usize = SLOTS / 64;
/// Slots that have a bit in [`Doorbell::news`] itself: a pair of processes with few connections touches no other line.
pub const DIRECT: usize = 64 - WORDS;
/// Links of one process.
pub const LINKS: usize = 512;
/// Doorbells of one process: one bit each in [`Side::doorbells`].
pub const PLACES: usize = 64;

/// In [`Reader::head`]: the stretch has ended at this position. The kernel carries the bytes after it.
pub const FROZEN: u64 = 1 << 63;
/// In [`Reader::head`]: the writer also sends the unread bytes by kernel, from [`Writer::resume`] on. The reader goes on
/// reading the ring, and later discards the kernel's copies of bytes that it has read in the ring.
pub const COPYING: u64 = 1 << 62;
/// Mask of the position in [`Reader::head`].
pub const POSITION: u64 = COPYING - 1;
/// [`Reader::head`] of a slot that has never carried anything. Larger than any position.
pub const UNUSED: u64 = FROZEN | POSITION;

/// Start of the segment. The broker writes it before it sends the memory to a member.
#[repr(C, align(64))]
pub struct Header {
    /// [`crate::MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::VERSION`] of the broker that made the segment.
    pub version: AtomicU32,
    /// [`SLOTS`].
    pub slots: AtomicU32,
    /// Bytes of one ring, a power of two.
    pub ring_size: AtomicU32,
}

/// The words of one doorbell. A thread of this side waits at it: in an epoll set, or in one blocking call.
///
/// The producer sets the bits and then loads `armed`. The sleeper sets `armed` and then loads the bits.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Doorbell {
    /// Bit [`WORDS`]` + s`: slot s, one of the first [`DIRECT`], may have news. Bit w below: `ready[w]` may be non-zero.
    pub news: AtomicU64,
    /// 1 while a thread sleeps here. A producer that exchanges it for 0 rings.
    pub armed: AtomicU32,
    _pad: [u32; 13],
    /// Bit s: slot s, from [`DIRECT`] on, may have news. A hint only.
    pub ready: [AtomicU64; WORDS],
}

/// What belongs to one side of the link as a whole.
#[repr(C, align(64))]
pub struct SideArea {
    /// Bit p: this side has an eventfd in the doorbell of the *other* side's waiter p, and will ring it.
    pub known: AtomicU64,
    _pad: [u64; 7],
    /// By number of the waiter.
    pub doorbells: [Doorbell; PLACES],
}

/// The writer's words of one direction. Every write touches the first line, a switch of carriers the second.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Writer {
    /// Everything before this position is in the ring.
    pub tail: AtomicU64,
    /// Position whose byte lies at offset 0 of the ring. The writer moves it only while the ring is empty.
    pub base: AtomicU64,
    /// Where the present stretch of ring began.
    pub ring_from: AtomicU64,
    /// Number of the present stretch; 0: none yet. Written last.
    pub epoch: AtomicU32,
    /// 1: the writer waits for space.
    pub wants_space: AtomicU32,
    /// 1: an end (FIN) follows the published bytes; ask the kernel. 2: and this side takes nothing more by kernel.
    pub fin: AtomicU32,
    /// Number of the last complete stretch: its tail does not move any more, and the kernel carries what follows.
    pub complete: AtomicU32,
    /// When this side last had news without ringing for it, in ticks of the processor's clock. A hint.
    pub news_at: AtomicU64,
    _line: [u64; 2],
    /// With [`COPYING`]: position of the first byte of which the kernel carries a copy.
    pub resume: AtomicU64,
    /// Bytes of a complete stretch that the kernel carries, too. They come before what follows the stretch.
    pub copied: AtomicU64,
    /// Unread bytes of the stretch up to this position have been sent by kernel, by either side ([`Side::sends`]). All ones: the
    /// rest is not sent.
    pub sent_to: AtomicU64,
    _pad: [u64; 5],
}

/// The reader's word of one direction.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Reader {
    /// The reader has consumed everything before this position. Two bits of it: [`FROZEN`] and [`COPYING`].
    pub head: AtomicU64,
    _pad: [u64; 7],
}

/// The words of one side about its end of the connection. They change rarely.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Side {
    /// Bit p: the peer rings the doorbell of this side's waiter p when something happens.
    pub doorbells: AtomicU64,
    /// 1: this side reads rings, and each of its waits hears doorbells.
    pub ready: AtomicU32,
    /// The last stretch whose end this side, as a reader, has noticed.
    pub seen_epoch: AtomicU32,
    /// Counts changes that the writer of the direction that this side reads must look at: of `head`, `ready`, `away`, `hold`.
    pub froze: AtomicU32,
    /// 1: this side has released the slot.
    pub released: AtomicU32,
    /// 1: one of the two sides is sending, by kernel, unread bytes of the direction that this side writes.
    pub sends: AtomicU32,
    /// The socket's number in the process of this side.
    pub number: AtomicU32,
    /// 1: this side may wait where no doorbell is heard. No stretch of ring may begin, in either direction.
    pub away: AtomicU32,
    _pad: [u32; 7],
}

/// Counters of one side, for `status` only.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Counters {
    /// Bytes sent by kernel.
    pub kernel_tx: AtomicU64,
    /// Bytes received by kernel.
    pub kernel_rx: AtomicU64,
    /// Bytes sent by ring.
    pub ring_tx: AtomicU64,
    /// Bytes received by ring.
    pub ring_rx: AtomicU64,
    /// Last reason code of this side; 0: none.
    pub reason: AtomicU32,
    _pad: [u32; 7],
}

/// One connection.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// By direction, which is named by the side that writes it.
    pub writer: [Writer; 2],
    /// By direction.
    pub reader: [Reader; 2],
    /// By side.
    pub side: [Side; 2],
    /// By side.
    pub counters: [Counters; 2],
    /// Not 0: no stretch of ring may begin. The broker writes bit 0; side s, if the broker is gone, bit 1 + s.
    pub hold: AtomicU32,
    /// Odd: the stack carries the connection on the network: the kernel's socket is parked, and no call may use it. Each change
    /// adds 1. Only a peer that is the stack writes it.
    pub parked: AtomicU32,
    /// 1: the program needs the kernel's socket. The stack gives the connection back. 2: the stack also gives the slot back, and
    /// closes its copy of the socket.
    pub wanted: AtomicU32,
    /// Not 0: the stack has a copy of the socket, so that the program's close is not the last one. The number tells the slot's connections
    /// apart: a process of the stack may be late to say that it has closed an earlier one's.
    pub socket_held: AtomicU32,
    /// For the program: this and the kernel's count of written bytes, which begins anew when a connection is given back, make the
    /// number of bytes that the program has given to the kernel. The sum may wrap.
    pub written_before: AtomicU64,
    _pad: [u32; 10],
}

const PAGE: usize = 4096;
/// Offset of `SideArea[2]`.
pub const SIDES_AT: usize = PAGE;
/// Offset of `Slot[SLOTS]`.
pub const SLOTS_AT: usize = SIDES_AT + 2 * size_of::<SideArea>();
/// Offset of the first ring.
pub const RINGS_AT: usize = (SLOTS_AT + SLOTS * size_of::<Slot>()).next_multiple_of(PAGE);

/// Offset of the `SideArea` of `side`.
pub const fn side_at(side: usize) -> usize {
    SIDES_AT + side * size_of::<SideArea>()
}

/// Offset of `slot`.
pub const fn slot_at(slot: usize) -> usize {
    SLOTS_AT + slot * size_of::<Slot>()
}

/// Offset of the ring that `side` writes for `slot`.
pub const fn ring_at(ring_size: usize, slot: usize, side: usize) -> usize {
    RINGS_AT + (2 * slot + side) * ring_size
}

/// Bytes of a whole link.
pub const fn link_size(ring_size: usize) -> usize {
    ring_at(ring_size, SLOTS, 0)
}

// The atomics of a model checker have other sizes. They are never in shared memory.
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() <= PAGE);
    assert!(size_of::<Doorbell>() == 64 + WORDS * 8 && align_of::<Doorbell>() == 64);
    assert!(size_of::<SideArea>() == 64 + PLACES * size_of::<Doorbell>());
    assert!(size_of::<Writer>() == 128 && size_of::<Reader>() == 64);
    assert!(core::mem::offset_of!(Writer, resume) == 64);
    assert!(size_of::<Side>() == 64 && size_of::<Counters>() == 64);
    assert!(size_of::<Slot>() == 11 * 64);
    assert!(SLOTS_AT.is_multiple_of(64) && RINGS_AT.is_multiple_of(PAGE));
};
