//! Messages on the control socket (AF_UNIX, SOCK_SEQPACKET): one fixed-size record each, with at most one
//! file descriptor (SCM_RIGHTS).
//!
//! ```text
//! member                                broker
//!   | Hello ------------------------------> |   version, wished ring size
//!   | <---------------- Welcome (page fd)   |   or Reject
//!   | Doorbell (epoll instance) ----------> |   a place of mine, where peers are to ring
//!   | Offer (socket fd) ------------------> |   I hold this socket; pair it, or (passive) pair it if the other end asks
//!   | Press ------------------------------> |   a passive offer is passive no longer
//!   | <---------------- Again               |   offer it once more: somebody calls the address it was translated from
//!   | <---------------- Link (memory fd)    |   first connection between the two processes
//!   | <------------ PeerDoorbell (eventfd)  |   to ring at a place of the peer; nobody else has it
//!   | <---------------- Slot                |   this offer is that slot
//!   | Release ----------------------------> |   done with the slot
//!
//! stack (a member that has joined by the operator's socket)
//!   | <---------------- Foreign (socket fd) |   an offer without an other end on this host
//!   | Carry ------------------------------> |   I carry it: a slot for both of us; or why not
//! ```

/// What a record means. Fields not named are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Member: first record. `arg` = wished ring size in bytes. `arg2` = number of descriptors for doorbells of its peers; 0:
    /// the member does not say.
    Hello = 1,
    /// Member: `offer` = its own number for the connection, `arg` = socket cookie; the socket is attached. `arg2` = 1: a passive
    /// offer, which is paired only if the other end's offer is not passive.
    Offer = 2,
    /// Member: withdraws `offer`. If the broker has paired it meanwhile, this gives the slot back: the member need not
    /// receive the slot first, which a sleeping process would do late.
    Withdraw = 3,
    /// Member: the doorbell of `place` is attached: an epoll instance, to which the broker adds an eventfd for each peer.
    Doorbell = 4,
    /// Member: gives `slot` of `link` back, as `side`.
    Release = 5,
    /// Member: asks for [`Kind::Settled`]. `arg` comes back.
    Settle = 6,
    /// Member: `offer` is passive no longer.
    Press = 7,
    /// Stack: the answer to [`Kind::Foreign`]. `arg` = its number, `arg2` = 0: it carries the connection, and gets a slot; else
    /// the reason code why it does not.
    Carry = 8,

    /// Broker: `arg` = member number; the page ([`crate::page::Page`]) is attached.
    Welcome = 16,
    /// Broker: the member must stay on the kernel. `arg` = the broker's version.
    Reject = 17,
    /// Broker: `link`, `side` (yours), `arg` = ring size, `arg2` = pid of the peer; the memory is attached. `place` = 1: the peer
    /// is the stack.
    Link = 18,
    /// Broker: `link`, `side` (yours), `place` (the peer's). An eventfd is attached that is in the doorbell of that place. No
    /// other process has it.
    PeerDoorbell = 19,
    /// Broker: `offer` is now `slot` of `link`, you are `side`.
    Slot = 20,
    /// Broker: `offer` will not be paired; `arg` = reason code.
    Refused = 21,
    /// Broker: the peer of `link` is gone and all your slots there are released: unmap the link.
    Unlink = 22,
    /// Broker: everything that the member sent before [`Kind::Settle`] is handled, and all members concerned have been told.
    /// Each offer has been paired or refused, or waits for its other end. `arg` = the member's.
    Settled = 23,
    /// Broker: another offer fits `offer`, which the broker has dropped. The member must offer it again, since the result of
    /// connection tracking may be out of date. `arg` = the cookie that came with the offer, to be sent again.
    Again = 24,
    /// Broker, to the stack: an offer whose other end is not on this host, as far as is known. `arg` = number of the question;
    /// the socket is attached. `place`, `offer` and `arg2` together tell the program's trust domain from others.
    Foreign = 25,

    /// Command line: asks for the status. Answer: [`Kind::Done`] with a memfd that holds the JSON text.
    Status = 32,
    /// Command line: go back to the kernel. `arg` = 0: all; 1: process `arg2`; 2: connection `link`.`slot`.
    Detach = 33,
    /// Command line: rings may be used again. Arguments as of [`Kind::Detach`].
    Attach = 34,
    /// Broker: `arg` = connections concerned.
    Done = 35,
    /// Broker: there is no such process or connection.
    Unknown = 36,
    /// Command line: the broker must not end for lack of members while the sending process lives.
    Stay = 37,
}

impl Kind {
    /// The kind with this number, if it is one.
    pub const fn from_code(code: u32) -> Option<Kind> {
        use Kind::*;
        const ALL: [Kind; 24] = [
            Hello,
            Offer,
            Withdraw,
            Doorbell,
            Release,
            Settle,
            Press,
            Carry,
            Welcome,
            Reject,
            Link,
            PeerDoorbell,
            Slot,
            Refused,
            Unlink,
            Settled,
            Again,
            Foreign,
            Status,
            Detach,
            Attach,
            Done,
            Unknown,
            Stay,
        ];
        let mut i = 0;
        while i < ALL.len() {
            if ALL[i] as u32 == code {
                return Some(ALL[i]);
            }
            i += 1;
        }
        None
    }
}

/// One record. Little-endian words in this order; see [`Msg::to_bytes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Msg {
    /// A [`Kind`], or the number of one that this version does not know.
    pub kind: u32,
    /// [`crate::VERSION`] of the sender.
    pub version: u32,
    /// The sender's number of an offer, which the answer repeats.
    pub offer: u64,
    /// Depends on the kind.
    pub arg: u64,
    /// Depends on the kind.
    pub arg2: u64,
    /// Number of a link within the receiving process.
    pub link: u32,
    /// Index of a slot.
    pub slot: u32,
    /// 0 or 1: a side of the link.
    pub side: u32,
    /// Number of a waiter.
    pub place: u32,
}

/// Bytes of a record.
pub const LEN: usize = 48;

impl Msg {
    /// A record of this kind with all else 0.
    pub fn new(kind: Kind) -> Msg {
        Msg { kind: kind as u32, version: crate::VERSION, ..Msg::default() }
    }

    /// The kind, if this version knows it.
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_code(self.kind)
    }

    /// Words of the record, little-endian, in the order of the fields.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0..4].copy_from_slice(&self.kind.to_le_bytes());
        out[4..8].copy_from_slice(&self.version.to_le_bytes());
        out[8..16].copy_from_slice(&self.offer.to_le_bytes());
        out[16..24].copy_from_slice(&self.arg.to_le_bytes());
        out[24..32].copy_from_slice(&self.arg2.to_le_bytes());
        out[32..36].copy_from_slice(&self.link.to_le_bytes());
        out[36..40].copy_from_slice(&self.slot.to_le_bytes());
        out[40..44].copy_from_slice(&self.side.to_le_bytes());
        out[44..48].copy_from_slice(&self.place.to_le_bytes());
        out
    }

    /// None unless `bytes` is exactly one record.
    pub fn from_bytes(bytes: &[u8]) -> Option<Msg> {
        if bytes.len() != LEN {
            return None;
        }
        let u32_at = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        Some(Msg {
            kind: u32_at(0),
            version: u32_at(4),
            offer: u64_at(8),
            arg: u64_at(16),
            arg2: u64_at(24),
            link: u32_at(32),
            slot: u32_at(36),
            side: u32_at(40),
            place: u32_at(44),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_wire() {
        let m =
            Msg { kind: 2, version: 3, offer: 1 << 40, arg: 5, arg2: u64::MAX, link: 7, slot: 8, side: 1, place: 63 };
        assert_eq!(Msg::from_bytes(&m.to_bytes()), Some(m));
    }

    #[test]
    fn only_whole_records_are_taken() {
        assert_eq!(Msg::from_bytes(&[0; LEN - 1]), None);
        assert_eq!(Msg::from_bytes(&[0; LEN + 1]), None);
        assert_eq!(Msg { kind: 99, ..Msg::default() }.kind(), None);
    }
}
