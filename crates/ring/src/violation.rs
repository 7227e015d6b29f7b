//! Values that no correct peer can write.

/// The shared word that has such a value. The connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerViolation {
    /// `tail` is before the reader's position, or more than a ring ahead of it.
    Tail,
    /// `head` is a position, or has a mark, that its reader cannot have written.
    Head,
    /// `ring_from` is before what the reader has read by then.
    RingFrom,
    /// `resume` or `copied` counts copies of bytes that the reader has not had from the ring.
    Copies,
    /// `sent_to` is beyond what the writer has published.
    SentTo,
    /// The peer changed the word at each of [`PATIENCE`](crate::PATIENCE) attempts.
    Unsettled,
    /// The kernel has delivered bytes while the ring carries.
    KernelBytes,
}
