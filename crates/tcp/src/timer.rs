//! The retransmission timer (RFC 6298). The fast path does not retransmit: expiry returns the connection.

use crate::{Progress, Seq};

/// Microseconds that the variation counts for at least (Linux: TCP_RTO_MIN).
const LEAST_VARIATION: u64 = 200_000;
/// Before the first measurement (RFC 6298, section 2.1).
const FIRST: u64 = 1_000_000;
/// Linux: TCP_RTO_MAX.
const MOST: u64 = 120_000_000;

/// Microseconds after which unacknowledged data counts as lost (RFC 6298, section 2.3, with Linux's least value).
pub fn timeout(progress: &Progress) -> u64 {
    if progress.srtt == 0 {
        return FIRST;
    }
    let variation = (4 * u64::from(progress.rttvar)).max(LEAST_VARIATION);
    (u64::from(progress.srtt) + variation).min(MOST)
}

/// Adds a measurement of the round-trip time, in microseconds (RFC 6298, sections 2.2 and 2.3).
pub fn measured(progress: &mut Progress, rtt: u64) {
    let rtt = rtt.clamp(1, MOST) as i64;
    if progress.srtt == 0 {
        (progress.srtt, progress.rttvar) = (rtt as u32, rtt as u32 / 2);
        return;
    }
    let (srtt, rttvar) = (i64::from(progress.srtt), i64::from(progress.rttvar));
    progress.rttvar = (rttvar + ((srtt - rtt).abs() - rttvar) / 4) as u32;
    progress.srtt = (srtt + (rtt - srtt) / 8).max(1) as u32;
}

/// The one segment whose round trip is being measured. No segment is ever sent twice here, so each measurement is valid (Karn's
/// algorithm).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timed {
    /// None.
    #[default]
    Idle,
    /// The acknowledgement of `end` ends the measurement.
    Since {
        /// When the segment left.
        at: u64,
        /// The number after its last byte.
        end: Seq,
    },
}

impl Timed {
    /// A segment leaves.
    #[inline]
    #[must_use]
    pub fn sent(self, end: Seq, now: u64) -> Timed {
        match self {
            Timed::Idle => Timed::Since { at: now, end },
            running => running,
        }
    }

    /// Everything before `una` is acknowledged.
    #[inline]
    pub fn acknowledged(&mut self, una: Seq, now: u64, progress: &mut Progress) {
        if let Timed::Since { at, end } = *self
            && !una.is_before(end)
        {
            measured(progress, now.saturating_sub(at));
            *self = Timed::Idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let mut progress = Progress::default();
        assert_eq!(timeout(&progress), FIRST);
        measured(&mut progress, 80_000);
        assert_eq!((progress.srtt, progress.rttvar), (80_000, 40_000));
        assert_eq!(timeout(&progress), 80_000 + LEAST_VARIATION);
        measured(&mut progress, 160_000);
        assert_eq!((progress.srtt, progress.rttvar), (90_000, 50_000));
        measured(&mut progress, 1_000_000);
        assert_eq!((progress.srtt, progress.rttvar), (203_750, 265_000));
        assert_eq!(timeout(&progress), 203_750 + 4 * 265_000);
    }

    #[test]
    fn no_measurement_is_out_of_range() {
        let mut progress = Progress::default();
        for rtt in [0, u64::MAX, 0, u64::MAX] {
            measured(&mut progress, rtt);
            assert!(progress.srtt > 0 && timeout(&progress) <= MOST);
        }
    }

    #[test]
    fn one_segment_at_a_time_is_measured() {
        let mut progress = Progress::default();
        let mut timed = Timed::default().sent(Seq(10), 100).sent(Seq(20), 900);
        timed.acknowledged(Seq(9), 500, &mut progress);
        assert_eq!(progress.srtt, 0);
        timed.acknowledged(Seq(10), 600, &mut progress);
        assert_eq!((progress.srtt, timed), (500, Timed::Idle));
    }
}
