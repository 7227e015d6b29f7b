//! The congestion window (RFC 5681, RFC 3465, RFC 7661). It is taken over from the kernel and only grows here, more slowly than
//! the kernel's: loss and ECN marks return the connection.

use crate::{Progress, timer};

/// What the window's growth needs beside [`Progress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Congestion {
    /// Bytes acknowledged that have not made the window grow yet.
    acked: u32,
    /// Most segments in flight since `since`.
    used: u32,
    /// When the use of the window was last looked at.
    since: u64,
    /// When data last left.
    sent: u64,
}

/// The window that a connection restarts with (RFC 5681, section 4.1; RFC 6928).
const RESTART: u32 = 10;
/// Most segments by which an acknowledgement opens the window (RFC 3465, section 2.2).
const MOST_PER_ACK: u32 = 2;
/// The window in segments never grows beyond this.
const LARGEST: u32 = crate::flight::MOST as u32;

impl Congestion {
    /// A worker begins at this time.
    pub fn begun(now: u64) -> Congestion {
        Congestion { since: now, sent: now, ..Congestion::default() }
    }

    /// `bytes` have been acknowledged. `was_full`: the window was, before. A window that was not full has not been tested, and
    /// does not grow (RFC 7661, section 4.3).
    #[inline]
    pub fn acknowledged(&mut self, progress: &mut Progress, bytes: u32, mss: u32, was_full: bool) {
        if !was_full || progress.cwnd >= LARGEST {
            return;
        }
        self.acked = self.acked.saturating_add(bytes);
        if progress.cwnd < progress.ssthresh {
            self.slow_start(progress, mss);
        } else {
            self.avoid(progress, mss);
        }
    }

    /// One segment for each segment's worth of bytes (RFC 3465, section 2.2).
    fn slow_start(&mut self, progress: &mut Progress, mss: u32) {
        let more = (self.acked / mss).min(MOST_PER_ACK);
        self.acked %= mss;
        progress.cwnd = (progress.cwnd + more).min(progress.ssthresh).min(LARGEST);
    }

    /// One segment for each window's worth of bytes (RFC 3465, section 2.1).
    fn avoid(&mut self, progress: &mut Progress, mss: u32) {
        let window = progress.cwnd.saturating_mul(mss);
        if self.acked >= window {
            self.acked -= window;
            progress.cwnd += 1;
        }
    }

    /// Data is about to leave. `count`: segments in flight. A window that was not used for a while says nothing of the path
    /// any more.
    #[inline]
    pub fn before_send(&mut self, progress: &mut Progress, count: usize, now: u64) {
        let timeout = timer::timeout(progress);
        let with_this = count as u32 + 1;
        self.used = self.used.max(with_this);
        if count == 0 && now.saturating_sub(self.sent) > timeout {
            self.restart(progress, now);
        } else if now.saturating_sub(self.since) > timeout {
            self.validate(progress, now);
        }
        self.used = self.used.max(with_this);
        self.sent = now;
    }

    /// After an idle time (RFC 5681, section 4.1).
    fn restart(&mut self, progress: &mut Progress, now: u64) {
        self.reduce(progress, RESTART.min(progress.cwnd), now);
    }

    /// After a time in which less than the window was used, half of the unused part goes, as in Linux
    /// (`tcp_cwnd_application_limited`; RFC 7661, section 4.4 permits more).
    fn validate(&mut self, progress: &mut Progress, now: u64) {
        let used = self.used.max(RESTART);
        let cwnd = if used < progress.cwnd { (progress.cwnd + used) / 2 } else { progress.cwnd };
        self.reduce(progress, cwnd, now);
    }

    fn reduce(&mut self, progress: &mut Progress, cwnd: u32, now: u64) {
        if cwnd < progress.cwnd {
            // Linux: tcp_current_ssthresh.
            progress.ssthresh = progress.ssthresh.max(progress.cwnd / 4 * 3);
            progress.cwnd = cwnd;
        }
        (self.used, self.since) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn window(cwnd: u32, ssthresh: u32) -> Progress {
        Progress { cwnd, ssthresh, ..Progress::default() }
    }

    #[test]
    fn slow_start_opens_by_two_segments_an_ack() {
        let (mut congestion, mut progress) = (Congestion::begun(0), window(10, 40));
        congestion.acknowledged(&mut progress, 10 * MSS, MSS, true);
        assert_eq!(progress.cwnd, 12);
        congestion.acknowledged(&mut progress, MSS / 2, MSS, true);
        assert_eq!(progress.cwnd, 12);
        congestion.acknowledged(&mut progress, MSS / 2, MSS, true);
        assert_eq!(progress.cwnd, 13, "small acknowledgements add up");
    }

    #[test]
    fn beyond_the_threshold_it_opens_by_one_segment_a_window() {
        let (mut congestion, mut progress) = (Congestion::begun(0), window(20, 20));
        for _ in 0..19 {
            congestion.acknowledged(&mut progress, MSS, MSS, true);
        }
        assert_eq!(progress.cwnd, 20);
        congestion.acknowledged(&mut progress, MSS, MSS, true);
        assert_eq!(progress.cwnd, 21);
    }

    #[test]
    fn a_window_that_was_not_full_does_not_grow() {
        let (mut congestion, mut progress) = (Congestion::begun(0), window(10, u32::MAX));
        congestion.acknowledged(&mut progress, 100 * MSS, MSS, false);
        assert_eq!(progress, window(10, u32::MAX));
    }

    #[test]
    fn it_never_grows_beyond_what_may_be_in_flight() {
        let (mut congestion, mut progress) = (Congestion::begun(0), window(LARGEST - 1, u32::MAX));
        for _ in 0..5 {
            congestion.acknowledged(&mut progress, 9 * MSS, MSS, true);
        }
        assert_eq!(progress.cwnd, LARGEST);
    }

    #[test]
    fn an_idle_connection_restarts() {
        let (mut congestion, mut progress) = (Congestion::begun(0), window(40, 20));
        congestion.before_send(&mut progress, 0, 1_000_000);
        assert_eq!(progress, window(40, 20), "not idle for longer than the timeout");
        congestion.before_send(&mut progress, 0, 2_000_001);
        assert_eq!(progress, window(10, 30));
    }

    #[test]
    fn a_window_does_not_decay_below_what_is_in_flight() {
        let (mut congestion, mut progress) = (Congestion::begun(0), window(13, 20));
        congestion.before_send(&mut progress, 11, 0);
        congestion.before_send(&mut progress, 12, 1_000_001);
        assert_eq!(progress, window(13, 20), "this segment uses all of it");
    }

    #[test]
    fn an_unused_window_decays() {
        let (mut congestion, mut progress) = (Congestion::begun(0), window(50, 20));
        for at in 1..=11 {
            congestion.before_send(&mut progress, 1, at * 100_000);
        }
        assert_eq!(progress, window(30, 36), "half of what lies between the window and ten segments");
    }
}
