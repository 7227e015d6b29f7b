//! Which segments are acceptable, and which are regular. Nothing here changes a connection.

use crate::wire::parse::{Flags, Segment};
use crate::{Agreed, Back, Progress, Seq};

/// Why a segment is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It changes nothing.
    Discard(Discarded),
    /// The kernel must judge it.
    Return(Back),
}

use Refusal::{Discard, Return};

/// Why a segment changes nothing. All but [`Discarded::OldAck`] can be forged by anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discarded {
    /// The frame was sent to another device.
    OtherHost,
    /// It acknowledges nothing (no ACK flag): dropped (RFC 9293, section 3.10.7.4, fifth step).
    NoAck,
    /// All its bytes have arrived before: answered (RFC 9293, section 3.10.7.4, first step).
    OldData,
    /// It lies outside of the window: answered (as above).
    OutOfWindow,
    /// A reset outside of the window: dropped (RFC 5961, section 3.2).
    Reset,
    /// A SYN outside of the window: challenged (RFC 5961, section 4.2).
    Syn,
    /// It acknowledges what was never sent: challenged (RFC 5961, section 5.2; RFC 9293, section 3.10.7.4, fifth step).
    AckOfUnsent,
    /// It acknowledges less than any window ago: challenged (RFC 5961, section 5.2).
    AckTooOld,
    /// It acknowledges less than an earlier one, and has no data: dropped (RFC 9293, section 3.10.7.4, fifth step).
    OldAck,
    /// It has data, and a timestamp that is older than one that has arrived: answered (PAWS; RFC 7323, section 5.3).
    OldTimestamp,
}

impl Discarded {
    /// Whether an acknowledgement answers it.
    pub const fn is_answered(self) -> bool {
        use Discarded::{AckOfUnsent, AckTooOld, OldData, OldTimestamp, OutOfWindow, Syn};
        matches!(self, OldData | OldTimestamp | OutOfWindow | Syn | AckOfUnsent | AckTooOld)
    }
}

/// What the acknowledgement number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledges {
    /// Less than an earlier one. The number and the window are ignored, and the data counts.
    Old,
    /// Nothing more.
    Nothing,
    /// More bytes.
    More,
}

/// Bytes at the segment's beginning that have arrived before: the sequence number is acceptable, and nothing is missing
/// before the segment.
#[inline]
pub fn old_bytes(segment: &Segment, progress: &Progress) -> Result<u32, Refusal> {
    let acceptable = is_acceptable(segment, progress);
    // RFC 5961, section 3.2. Linux judges whether the number is the exact one, and if not challenges the reset.
    if segment.flags.has(Flags::RST) {
        return Err(acceptable.map_or(Discard(Discarded::Reset), |()| Return(Back::Reset)));
    }
    // RFC 5961, section 4.2.
    if segment.flags.has(Flags::SYN) {
        return Err(acceptable.map_or(Discard(Discarded::Syn), |()| Return(Back::Syn)));
    }
    if !segment.flags.has(Flags::ACK) {
        return Err(Discard(Discarded::NoAck));
    }
    acceptable.map_err(Discard)?;
    if segment.seq.is_after(progress.rcv_nxt) {
        return Err(Return(Back::Gap));
    }
    if segment.seq.plus(segment.len()).is_after(beyond(segment, progress)) {
        return Err(Return(Back::BeyondWindow));
    }
    Ok(progress.rcv_nxt.since(segment.seq))
}

/// The end of what may arrive. A FIN needs no room, and the kernel judges it in any case.
fn beyond(segment: &Segment, progress: &Progress) -> Seq {
    progress.rcv_edge.plus(u32::from(segment.flags.has(Flags::FIN)))
}

/// The table of RFC 9293, section 3.10.7.4, first step.
#[inline]
fn is_acceptable(segment: &Segment, progress: &Progress) -> Result<(), Discarded> {
    let Progress { rcv_nxt, rcv_edge, .. } = *progress;
    let end = segment.seq.plus(segment.len());
    if segment.is_empty() {
        // Linux accepts the edge itself as well, which is what a peer sends that has filled the window.
        let is_in = !segment.seq.is_before(rcv_nxt) && !segment.seq.is_after(rcv_edge);
        return if is_in { Ok(()) } else { Err(Discarded::OutOfWindow) };
    }
    if !end.is_after(rcv_nxt) {
        return Err(Discarded::OldData);
    }
    if segment.seq.is_before(rcv_edge) { Ok(()) } else { Err(Discarded::OutOfWindow) }
}

/// RFC 5961, section 5.2.
#[inline]
pub fn acknowledges(segment: &Segment, progress: &Progress) -> Result<Acknowledges, Refusal> {
    let Progress { snd_una, snd_nxt, max_window, .. } = *progress;
    let ack = segment.ack;
    if ack.is_after(snd_nxt) {
        return Err(Discard(Discarded::AckOfUnsent));
    }
    if ack.is_before(snd_una.minus(max_window)) {
        return Err(Discard(Discarded::AckTooOld));
    }
    match ack {
        _ if ack.is_after(snd_una) => Ok(Acknowledges::More),
        _ if ack == snd_una => Ok(Acknowledges::Nothing),
        _ if segment.is_empty() => Err(Discard(Discarded::OldAck)),
        _ => Ok(Acknowledges::Old),
    }
}

/// Whether there is nothing in an acceptable segment but data, an acknowledgement, a window and timestamps.
#[inline]
pub fn regular(segment: &Segment, agreed: &Agreed) -> Result<(), Refusal> {
    flags(segment)?;
    options(segment, agreed)
}

const UNUSUAL: Flags = Flags::FIN.with(Flags::URG).with(Flags::CONGESTION).with(Flags::RESERVED);

#[inline]
fn flags(segment: &Segment) -> Result<(), Refusal> {
    let flags = segment.flags;
    if !flags.has(UNUSUAL) && !segment.is_marked {
        return Ok(());
    }
    Err(Return(match () {
        () if flags.has(Flags::FIN) => Back::Fin,
        () if flags.has(Flags::URG) => Back::Urgent,
        () if flags.has(Flags::RESERVED) => Back::Reserved,
        () => Back::Congestion,
    }))
}

#[inline]
fn options(segment: &Segment, agreed: &Agreed) -> Result<(), Refusal> {
    let options = &segment.options;
    if options.has_sack && !tells_of_a_duplicate(segment) {
        return Err(Return(Back::Sack));
    }
    match (agreed.has(Agreed::TIMESTAMPS), options.timestamps) {
        _ if options.is_irregular => Err(Return(Back::Option)),
        (false, Some(_)) => Err(Return(Back::Option)),
        // RFC 7323, section 3.2: once agreed, each segment has them.
        (true, None) => Err(Return(Back::NoTimestamp)),
        _ => Ok(()),
    }
}

/// D-SACK (RFC 2883, section 4): the peer reports bytes that came twice, and misses none. It is the kernel that has sent them twice,
/// just before the connection was taken.
fn tells_of_a_duplicate(segment: &Segment) -> bool {
    segment.options.only_block.is_some_and(|(from, to)| from.is_before(to) && !to.is_after(segment.ack))
}

/// Microseconds after which a timestamp no longer says what is older (Linux: TCP_PAWS_24DAYS).
const OUTDATED: u64 = 24 * 24 * 3600 * 1_000_000;

/// PAWS (RFC 7323, section 5.3): whether the segment is older than one that has arrived. Like Linux, this permits a difference of one
/// (TCP_PAWS_WINDOW).
#[inline]
pub fn has_old_timestamp(segment: &Segment, agreed: &Agreed, progress: &Progress) -> bool {
    let Some(timestamps) = segment.options.timestamps else { return false };
    let is_known = agreed.has(Agreed::TIMESTAMPS) && progress.ts_known != 0;
    // A reset and the SYN of a peer that has started anew may have any timestamp (RFC 7323, section 5.2).
    is_known
        && Seq(timestamps.value).plus(1).is_before(Seq(progress.ts_recent))
        && !segment.flags.has(Flags::RST.with(Flags::SYN))
}

/// Old data are dropped here: the kernel would accept them, as it does not learn TS.Recent when it gets the connection back. `age`:
/// microseconds since TS.Recent has arrived.
#[inline]
pub fn old_data(segment: &Segment, age: u64) -> Result<(), Refusal> {
    if segment.is_empty() || age >= OUTDATED { Ok(()) } else { Err(Discard(Discarded::OldTimestamp)) }
}
