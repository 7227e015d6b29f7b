//! When an acknowledgement leaves (RFC 9293, section 3.8.6.3; RFC 5681, section 4.2), at the times at which Linux sends it.

/// The acknowledgement that this end owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// Everything that was received is acknowledged.
    #[default]
    Idle,
    /// It may wait for data to go with, until this time in microseconds.
    Delayed {
        /// When it leaves at the latest.
        due: u64,
    },
    /// It leaves at once.
    Now,
    /// It leaves at once, and once more. Data was received twice before the first acknowledgement of it. A Linux peer that has
    /// probed for a loss (RFC 8985, section 7) learns from an acknowledgement that changes nothing that nothing was lost.
    Twice,
}

/// Microseconds that an acknowledgement waits at most (Linux: TCP_ATO_MIN).
pub const DELAY: u64 = 40_000;

impl Ack {
    /// Data has arrived. `unacked`: bytes received since the last acknowledgement; `full`: bytes of a full segment of the peer.
    #[inline]
    #[must_use]
    pub fn received(self, unacked: u32, full: u32, now: u64) -> Ack {
        match self {
            // "At least every second full-sized segment" (RFC 5681, section 4.2).
            Ack::Idle | Ack::Delayed { .. } if unacked > full => Ack::Now,
            Ack::Idle => Ack::Delayed { due: now.saturating_add(DELAY) },
            owed => owed,
        }
    }

    /// Data has arrived once more.
    #[must_use]
    pub fn received_again(self) -> Ack {
        if self == Ack::Idle { Ack::Now } else { Ack::Twice }
    }

    /// A segment leaves that acknowledges everything.
    #[inline]
    #[must_use]
    pub fn sent(self) -> Ack {
        if self == Ack::Twice { Ack::Now } else { Ack::Idle }
    }

    /// Whether it leaves now, with data or without.
    #[inline]
    pub fn is_due(self, now: u64) -> bool {
        match self {
            Ack::Idle => false,
            Ack::Delayed { due } => now >= due,
            Ack::Now | Ack::Twice => true,
        }
    }

    /// When it leaves at the latest. `None`: none is owed.
    #[inline]
    pub fn deadline(self) -> Option<u64> {
        match self {
            Ack::Idle => None,
            Ack::Delayed { due } => Some(due),
            Ack::Now | Ack::Twice => Some(0),
        }
    }
}

/// Limits the answers to segments that are not acceptable, as Linux does (`tcp_invalid_ratelimit`): two ends that answer each
/// other's answers would never stop, and forged segments must not make a connection send (RFC 5961, section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerLimit(Option<u64>);

/// Microseconds between two answers.
const BETWEEN_ANSWERS: u64 = 500_000;

impl AnswerLimit {
    /// Whether an answer may leave now. If so, it counts.
    pub fn permits(&mut self, now: u64) -> bool {
        let is_free = self.0.is_none_or(|last| now.saturating_sub(last) >= BETWEEN_ANSWERS);
        if is_free {
            self.0 = Some(now);
        }
        is_free
    }
}

/// The size of the peer's full segments: the largest that has arrived, as Linux estimates it (`tcp_measure_rcv_mss`). Segments that were
/// joined on their way do not count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullSegment(u32);

impl Default for FullSegment {
    /// What every host can receive (RFC 9293, section 3.7.1).
    fn default() -> FullSegment {
        FullSegment(536)
    }
}

impl FullSegment {
    /// A segment with this many bytes has arrived.
    #[inline]
    #[must_use]
    pub fn seen(self, bytes: u32) -> FullSegment {
        FullSegment(self.0.max(bytes))
    }

    /// Bytes.
    #[inline]
    pub fn bytes(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_full_segment_is_acknowledged_at_once() {
        let first = Ack::Idle.received(1448, 1448, 7);
        assert_eq!(first, Ack::Delayed { due: 7 + DELAY });
        assert_eq!(first.received(1449, 1448, 9), Ack::Now);
        assert_eq!(first.received(1448, 1448, 9), first, "the delay counts from the first byte");
    }

    #[test]
    fn a_delayed_ack_leaves_in_time() {
        let owed = Ack::Idle.received(1, 536, 0);
        assert!(!owed.is_due(DELAY - 1) && owed.is_due(DELAY));
        assert_eq!(owed.deadline(), Some(DELAY));
        assert!(Ack::Now.is_due(0) && !Ack::Idle.is_due(u64::MAX));
    }

    #[test]
    fn data_that_arrives_twice_is_acknowledged_as_often() {
        let owed = Ack::Idle.received(1, 536, 0).received_again();
        assert!(owed.is_due(0) && owed.sent().is_due(0));
        assert_eq!(owed.sent().sent(), Ack::Idle);
        assert_eq!(Ack::Idle.received_again().sent(), Ack::Idle);
    }

    #[test]
    fn answers_are_two_a_second() {
        let mut limit = AnswerLimit::default();
        assert!(limit.permits(0));
        assert!(!limit.permits(BETWEEN_ANSWERS - 1));
        assert!(limit.permits(BETWEEN_ANSWERS));
        assert!(!limit.permits(3), "a clock that goes back permits nothing");
    }

    #[test]
    fn a_full_segment_only_grows() {
        assert_eq!(FullSegment::default().seen(100).bytes(), 536);
        assert_eq!(FullSegment::default().seen(8948).seen(1).bytes(), 8948);
    }
}
