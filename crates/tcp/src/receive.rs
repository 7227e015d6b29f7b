//! A segment arrives: RFC 9293, section 3.10.7.4, for the ESTABLISHED state, with RFC 5961 and RFC 7323.

use crate::acceptable::{self, Acknowledges, Refusal};
use crate::ack::Ack;
use crate::state::{Connection, Memory, State};
use crate::wire::options::Timestamps;
use crate::wire::parse::Segment;
use crate::{Agreed, Back, Progress, Seq};

pub use crate::acceptable::Discarded;

/// What becomes of a segment.
#[derive(Debug)]
#[must_use]
pub enum Verdict<'c, 'f> {
    /// It belongs to the stream. The caller commits it.
    Accepted(Arrival<'c, 'f>),
    /// It changes nothing. An acknowledgement may be due: the caller calls [`Connection::next`], as after every segment.
    Discarded(Discarded),
    /// The kernel must judge it. Nothing has changed: the caller gives back the connection, and then the frame.
    Returned(Back),
}

/// An accepted segment that has not changed anything yet.
#[derive(Debug)]
#[must_use]
pub struct Arrival<'c, 'f> {
    connection: &'c mut Connection,
    next: State,
    payload: &'f [u8],
}

/// What a segment has brought. The caller tells the program, which must not learn of it earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Arrived {
    /// Bytes that the program can read now. The receive ring holds the bytes before [`Progress::rcv_nxt`].
    pub received: u32,
    /// Bytes of room that the program has gained in the send ring, which ends at [`Progress::snd_una`].
    pub acknowledged: u32,
}

impl Arrival<'_, '_> {
    /// Copies the bytes, then publishes the state. Only after that does the connection acknowledge the bytes, and only then can
    /// the caller tell the program.
    #[inline]
    pub fn commit(self, memory: &mut impl Memory) -> Arrived {
        let Arrival { connection, next, payload } = self;
        let before = connection.state.progress;
        if !payload.is_empty() {
            memory.put(before.rcv_nxt, payload);
        }
        if next.progress != before {
            memory.publish(&next.progress);
        }
        connection.state = next;
        connection.flight.acknowledge(next.progress.snd_una);
        Arrived {
            received: next.progress.rcv_nxt.since(before.rcv_nxt),
            acknowledged: next.progress.snd_una.since(before.snd_una),
        }
    }
}

impl Connection {
    /// Judges a segment of this connection ([`Connection::tuple`]).
    #[inline]
    pub fn receive<'f>(&mut self, segment: &Segment<'f>, now: u64) -> Verdict<'_, 'f> {
        match self.judge(segment, now) {
            Ok((next, payload)) => Verdict::Accepted(Arrival { connection: self, next, payload }),
            Err(Refusal::Discard(why)) => {
                self.answer(why, segment, now);
                Verdict::Discarded(why)
            }
            Err(Refusal::Return(why)) => {
                self.missing = why.is_loss().then_some(segment.ack);
                Verdict::Returned(why)
            }
        }
    }

    /// The state after the segment, and its new bytes.
    #[inline]
    fn judge<'f>(&self, segment: &Segment<'f>, now: u64) -> Result<(State, &'f [u8]), Refusal> {
        let progress = &self.state.progress;
        if segment.mac != self.headers.local_mac() {
            return Err(Refusal::Discard(Discarded::OtherHost));
        }
        let is_old = acceptable::has_old_timestamp(segment, &self.agreed, progress);
        if is_old {
            acceptable::old_data(segment, now.saturating_sub(self.state.ts_at))?;
        }
        let old = acceptable::old_bytes(segment, progress)?;
        let acknowledges = acceptable::acknowledges(segment, progress)?;
        acceptable::regular(segment, &self.agreed)?;
        if is_old {
            // Linux lets some old acknowledgements pass (tcp_disordered_ack), so it judges.
            return Err(Refusal::Return(Back::OldTimestamp));
        }
        let payload = segment.payload.get(old as usize..).unwrap_or_default();
        let mut next = self.state;
        next.learn_timestamp(segment, now);
        match acknowledges {
            Acknowledges::Old => {}
            Acknowledges::Nothing => next.same_ack(segment, &self.agreed)?,
            Acknowledges::More => next.more_acked(segment, self, now)?,
        }
        next.take(payload, self.agreed.mss, now);
        Ok((next, payload))
    }

    /// Lets an acknowledgement leave that answers a discarded segment.
    #[cold]
    fn answer(&mut self, why: Discarded, segment: &Segment, now: u64) {
        // Linux limits answers to segments without data only (tcp_oow_rate_limited): no answer has data, so two ends never
        // answer each other for ever, and a peer that sends data again always learns that it has arrived.
        let is_free = !segment.payload.is_empty() && why != Discarded::Syn;
        if why.is_answered() && (is_free || self.answers.permits(now)) {
            self.state.ack = if why == Discarded::OldData { self.state.ack.received_again() } else { Ack::Now };
        }
    }
}

/// Duplicate acknowledgements that tell a loss (RFC 5681, section 3.2).
const LOSS: u8 = 3;

impl State {
    /// The timestamp of the segment that the next acknowledgement answers (RFC 7323, section 4.3).
    #[inline]
    fn learn_timestamp(&mut self, segment: &Segment, now: u64) {
        let Some(Timestamps { value, .. }) = segment.options.timestamps else { return };
        let progress = &mut self.progress;
        let is_newer = progress.ts_known == 0 || !Seq(value).is_before(Seq(progress.ts_recent));
        if is_newer && !segment.seq.is_after(progress.rcv_acked) {
            (progress.ts_recent, progress.ts_known) = (value, 1);
            self.ts_at = now;
        }
    }

    /// The segment acknowledges what was acknowledged before.
    fn same_ack(&mut self, segment: &Segment, agreed: &Agreed) -> Result<(), Refusal> {
        let edge = self.progress.snd_edge;
        self.update_window(segment, agreed)?;
        // "Duplicate acknowledgement" as in RFC 5681, section 2.
        let is_duplicate = segment.is_empty() && self.progress.snd_edge == edge && self.progress.in_flight() > 0;
        if is_duplicate {
            self.duplicates += 1;
        }
        if self.duplicates >= LOSS { Err(Refusal::Return(Back::DuplicateAcks)) } else { Ok(()) }
    }

    /// The segment acknowledges bytes.
    fn more_acked(&mut self, segment: &Segment, connection: &Connection, now: u64) -> Result<(), Refusal> {
        let agreed = &connection.agreed;
        let bytes = segment.ack.since(self.progress.snd_una);
        self.progress.snd_una = segment.ack;
        self.update_window(segment, agreed)?;
        self.timed.acknowledged(segment.ack, now, &mut self.progress);
        let was_full = connection.flight.is_full(self.progress.cwnd);
        self.congestion.acknowledged(&mut self.progress, bytes, agreed.mss, was_full);
        self.duplicates = 0;
        self.restart_timeout(now);
        Ok(())
    }

    /// The window of an acceptable acknowledgement. SND.WL1 decides whether it is newer than the last one (RFC 9293, section
    /// 3.10.7.4); like Linux, a larger window counts for a newer one where RFC 793 compares SND.WL2.
    fn update_window(&mut self, segment: &Segment, agreed: &Agreed) -> Result<(), Refusal> {
        if segment.window == 0 {
            return Err(Refusal::Return(Back::ZeroWindow));
        }
        let width = u32::from(segment.window) << agreed.send_scale;
        let edge = segment.ack.plus(width);
        let progress = &mut self.progress;
        let is_newer = segment.seq.is_after(progress.snd_wl1);
        let is_larger = segment.seq == progress.snd_wl1 && edge.is_after(progress.snd_edge);
        if is_newer || is_larger {
            (progress.snd_edge, progress.snd_wl1) = (edge, segment.seq);
            progress.max_window = progress.max_window.max(width);
        }
        Ok(())
    }

    /// New bytes, in order. `mss`: a longer payload is several segments, which were joined on their way.
    fn take(&mut self, payload: &[u8], mss: u32, now: u64) {
        if payload.is_empty() {
            return;
        }
        let len = payload.len() as u32;
        let Progress { rcv_nxt, rcv_acked, .. } = self.progress;
        self.progress.rcv_nxt = rcv_nxt.plus(len);
        self.full = self.full.seen(len.min(mss));
        self.ack = self.ack.received(self.progress.rcv_nxt.since(rcv_acked), self.full.bytes(), now);
    }
}
