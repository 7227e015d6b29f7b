//! What leaves, and when.

use crate::ack::Ack;
use crate::state::{Connection, Memory, State};
use crate::wire::frame::{Fields, Headers, WriteError};
use crate::wire::options::Timestamps;
use crate::wire::parse::Flags;
use crate::{Agreed, Back, Seq, window};

/// Where the program is in its two rings. The program's memory says so: any value is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The next byte that it writes into the send ring.
    pub written: Seq,
    /// The next byte that it reads from the receive ring.
    pub read: Seq,
}

/// A segment that is due, and has not changed anything yet.
#[derive(Debug)]
#[must_use]
pub struct Departure<'c> {
    connection: &'c mut Connection,
    next: State,
    fields: Fields,
    payload: Payload,
}

/// Bytes of the send ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The number of the first one.
    pub at: Seq,
    /// How many. 0: the segment is an acknowledgement only.
    pub len: u32,
}

/// A segment that may leave: the record tells of it.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Outgoing<'c> {
    headers: &'c Headers,
    fields: Fields,
    payload: Payload,
}

impl<'c> Departure<'c> {
    /// Publishes that the segment leaves. The caller has a free frame for it: a segment that does not leave now counts as lost.
    #[inline]
    pub fn commit(self, memory: &mut impl Memory) -> Outgoing<'c> {
        let Departure { connection, next, fields, payload } = self;
        if next.progress != connection.state.progress {
            memory.publish(&next.progress);
        }
        connection.state = next;
        if payload.len > 0 {
            connection.flight.push(next.progress.snd_nxt);
        }
        Outgoing { headers: &connection.headers, fields, payload }
    }
}

impl Outgoing<'_> {
    /// The bytes of the send ring that the segment carries.
    #[inline]
    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// What its header says.
    pub fn fields(&self) -> Fields {
        self.fields
    }

    /// Writes the frame, and returns its length. `payload`: exactly the bytes of [`Outgoing::payload`], in two parts if the ring
    /// wraps.
    #[inline]
    pub fn write(&self, frame: &mut [u8], payload: [&[u8]; 2]) -> Result<usize, WriteError> {
        let (given, due) = (payload[0].len() + payload[1].len(), self.payload.len as usize);
        if given != due {
            return Err(WriteError::Payload { given, due });
        }
        self.headers.write(frame, &self.fields, payload)
    }
}

impl Connection {
    /// The next segment that is due. The caller asks until there is none: after segments have arrived, after the program has
    /// written or read, and at [`Connection::deadline`]. It handles segments that have arrived first. Otherwise, after a long
    /// sleep, this would report a timeout although the acknowledgement is already in the caller's queue.
    #[inline]
    pub fn next(&mut self, positions: Positions, now: u64) -> Result<Option<Departure<'_>>, Back> {
        if self.state.progress.in_flight() > 0 && self.is_time_up(now) {
            return Err(Back::Timeout);
        }
        let end = window::room_end(&self.agreed, &self.state.progress, positions.read).ok_or(Back::Ring)?;
        let len = self.sendable(positions.written, now)?;
        let State { progress, ack, .. } = &self.state;
        if len == 0 && !ack.is_due(now) && !window::update_is_due(&self.agreed, progress, end) {
            return Ok(None);
        }
        Ok(Some(self.departure(len, positions.written, end, now)))
    }

    /// Whether the peer may soon have no window left, or has none. While that is so, the caller must learn when the program has read:
    /// nothing else tells the peer that the window opens, and it would probe for that ever more rarely (RFC 9293, section 3.8.6.1).
    #[inline]
    pub fn is_window_short(&self) -> bool {
        window::is_short(&self.agreed, &self.state.progress)
    }

    /// The first bytes that the peer misses, once more: at most a segment. `None`: it misses none.
    ///
    /// The caller sends it as the connection goes back for a loss ([`Back::is_loss`]). The kernel takes bytes in flight for sent just
    /// now and for retransmitted (TCPCB_REPAIRED), so it would let two timeouts pass. Nothing changes, so nothing is committed.
    pub fn missing(&self, now: u64) -> Option<Outgoing<'_>> {
        let State { progress, .. } = &self.state;
        let at = self.missing.filter(|seq| seq.is_after(progress.snd_una)).unwrap_or(progress.snd_una);
        let payload = Payload { at, len: progress.snd_nxt.since_or_zero(at).min(self.agreed.mss) };
        let window = window::promise(&self.agreed, progress, progress.rcv_edge).field;
        let flags = flags(true);
        let fields = Fields { seq: at, ack: progress.rcv_nxt, flags, window, timestamps: self.timestamps(now) };
        (payload.len > 0).then_some(Outgoing { headers: &self.headers, fields, payload })
    }

    /// The acknowledgement that waits for data to go with. `None`: none is owed.
    ///
    /// The caller sends it as the connection goes back. Nothing changes, so nothing is committed.
    pub fn owed(&self, now: u64) -> Option<Outgoing<'_>> {
        let State { progress, ack, .. } = &self.state;
        let window = window::promise(&self.agreed, progress, progress.rcv_edge).field;
        let (seq, flags, timestamps) = (progress.snd_nxt, flags(false), self.timestamps(now));
        let fields = Fields { seq, ack: progress.rcv_nxt, flags, window, timestamps };
        let payload = Payload { at: seq, len: 0 };
        (*ack != Ack::Idle).then_some(Outgoing { headers: &self.headers, fields, payload })
    }

    fn is_time_up(&self, now: u64) -> bool {
        self.state.timeout.is_some_and(|timeout| now >= timeout)
    }

    /// How many bytes the next segment may carry. If bytes wait and none may leave, the timer runs.
    #[inline]
    fn sendable(&mut self, written: Seq, now: u64) -> Result<u32, Back> {
        let progress = &self.state.progress;
        let pending = written.since(progress.snd_nxt);
        if progress.in_flight().checked_add(pending).is_none_or(|all| all > self.agreed.send_ring) {
            return Err(Back::Ring);
        }
        if pending == 0 || !self.flight.has_room(progress.cwnd) {
            return Ok(0);
        }
        let whole = pending.min(self.agreed.mss);
        let len = whole.min(progress.snd_edge.since_or_zero(progress.snd_nxt));
        // Silly window syndrome (RFC 9293, section 3.8.6.2.1).
        if len < whole && len < progress.max_window / 2 || len == 0 {
            return self.wait_for_window(now);
        }
        Ok(if self.is_held_back(len) { 0 } else { len })
    }

    /// An acknowledgement of what is in flight may open the window. If nothing is, the peer has as much time to open it as
    /// before a probe (RFC 9293, section 3.8.6.1), and the probe is the kernel's.
    #[cold]
    fn wait_for_window(&mut self, now: u64) -> Result<u32, Back> {
        if self.state.progress.in_flight() == 0 && self.is_time_up(now) {
            return Err(Back::SmallWindow);
        }
        self.state.start_timeout(now);
        Ok(0)
    }

    /// Nagle's algorithm (RFC 9293, section 3.7.4) as Linux has it: one segment that is not full may be in flight.
    fn is_held_back(&self, len: u32) -> bool {
        let State { progress, small_end, .. } = &self.state;
        let is_small_in_flight = progress.in_flight() > 0 && small_end.is_after(progress.snd_una);
        self.agreed.has(Agreed::NAGLE) && len < self.agreed.mss && is_small_in_flight
    }

    fn departure(&mut self, len: u32, written: Seq, end: Seq, now: u64) -> Departure<'_> {
        let mut next = self.state;
        let payload = Payload { at: next.progress.snd_nxt, len };
        let promise = window::promise(&self.agreed, &next.progress, end);
        next.progress.rcv_edge = promise.edge;
        next.progress.rcv_acked = next.progress.rcv_nxt;
        next.ack = next.ack.sent();
        if len > 0 {
            next.congestion.before_send(&mut next.progress, self.flight.count(), now);
            next.send(len, self.agreed.mss, now);
        }
        let fields = Fields {
            seq: payload.at,
            ack: next.progress.rcv_nxt,
            flags: flags(next.progress.snd_nxt == written && len > 0),
            window: promise.field,
            timestamps: self.timestamps(now),
        };
        Departure { connection: self, next, fields, payload }
    }

    fn timestamps(&self, now: u64) -> Option<Timestamps> {
        let echo = self.state.progress.ts_recent;
        self.agreed.has(Agreed::TIMESTAMPS).then(|| Timestamps { value: self.agreed.timestamp(now), echo })
    }
}

/// The last bytes that the program has written are pushed (RFC 9293, section 3.9.1.2).
const fn flags(is_last: bool) -> Flags {
    if is_last { Flags::ACK.with(Flags::PSH) } else { Flags::ACK }
}

impl State {
    /// `len` bytes leave.
    fn send(&mut self, len: u32, mss: u32, now: u64) {
        let end = self.progress.snd_nxt.plus(len);
        if self.progress.in_flight() == 0 {
            self.timeout = None;
        }
        self.progress.snd_nxt = end;
        if len < mss {
            self.small_end = end;
        }
        self.timed = self.timed.sent(end, now);
        self.start_timeout(now);
    }
}
