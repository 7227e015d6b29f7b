//! What outlives the worker: with the two rings, all that is needed to give a connection back to the kernel, or to go on with
//! it.

use crate::Seq;

/// The state of a connection. The tuple, the [`crate::Link`] and the saved socket options lie beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// What never changes.
    pub agreed: Agreed,
    /// What every step publishes.
    pub progress: Progress,
}

/// What the handshake and the taking of the connection have fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Agreed {
    /// Bytes of the send ring: at most 2^30.
    pub send_ring: u32,
    /// Bytes of the receive ring: at most 2^30, and at least the window that the kernel has promised.
    pub receive_ring: u32,
    /// Most bytes of payload in a segment with this connection's options (`tcpi_snd_mss`).
    pub mss: u32,
    /// Added to the clock in milliseconds, makes the timestamp (TSval). See [`Agreed::timestamp`].
    pub timestamp_offset: u32,
    /// By how many bits to shift the window fields that the peer sends: at most 14.
    pub send_scale: u8,
    /// By how many bits to shift the window fields that this end sends: at most 14.
    pub receive_scale: u8,
    /// [`Agreed::TIMESTAMPS`], [`Agreed::SACK`], [`Agreed::NAGLE`].
    pub options: u16,
}

impl Agreed {
    /// Each segment has timestamps (RFC 7323).
    pub const TIMESTAMPS: u16 = 1;
    /// The peer may send SACK blocks (RFC 2018). For the give-back only.
    pub const SACK: u16 = 1 << 1;
    /// Nagle's algorithm: the socket does not have TCP_NODELAY.
    pub const NAGLE: u16 = 1 << 2;

    /// Whether this option is in use.
    #[inline]
    pub const fn has(&self, option: u16) -> bool {
        self.options & option != 0
    }

    /// The timestamp of a segment that leaves now. `now`: microseconds of CLOCK_MONOTONIC, which all processes of a host share.
    #[inline]
    pub const fn timestamp(&self, now: u64) -> u32 {
        ((now / 1000) as u32).wrapping_add(self.timestamp_offset)
    }
}

/// How far a connection has come.
///
/// The worker can be killed while it publishes this value, word by word ([`Progress::words`]). So each field is of use beside
/// old or new values of the others: a record in which any words of one step are new and the others old gives the connection
/// back without a byte lost, doubled or reordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Progress {
    /// The first byte sent that is not acknowledged (SND.UNA). The send ring holds it and all later ones.
    pub snd_una: Seq,
    /// The next byte to send (SND.NXT). No later byte has left.
    pub snd_nxt: Seq,
    /// The end of the window that the peer has offered (SND.UNA + SND.WND). An edge, and no width, so that it is right with an
    /// old `snd_una` and a new one.
    pub snd_edge: Seq,
    /// The number of the segment that last changed the window (SND.WL1).
    pub snd_wl1: Seq,
    /// The largest window that the peer has offered, in bytes.
    pub max_window: u32,
    /// The next byte to receive (RCV.NXT). The receive ring holds all earlier ones that the program has not read.
    pub rcv_nxt: Seq,
    /// The end of the largest window that this end has promised. The receive ring has room up to it.
    pub rcv_edge: Seq,
    /// The acknowledgement number of the last segment that was sent (Last.ACK.sent, `rcv_wup`).
    pub rcv_acked: Seq,
    /// The timestamp to echo (TS.Recent), if `ts_known` is 1.
    pub ts_recent: u32,
    /// 1: the peer's timestamp is known. The kernel does not tell it when a connection is taken.
    pub ts_known: u32,
    /// The congestion window, in segments (`tcpi_snd_cwnd`).
    pub cwnd: u32,
    /// The slow-start threshold, in segments (`tcpi_snd_ssthresh`).
    pub ssthresh: u32,
    /// The smoothed round-trip time in microseconds (`tcpi_rtt`); 0: not measured.
    pub srtt: u32,
    /// Its variation in microseconds (`tcpi_rttvar`).
    pub rttvar: u32,
}

impl Progress {
    /// Number of words.
    pub const WORDS: usize = 7;

    /// The value as words, each of which the caller stores at once.
    #[inline]
    pub const fn words(&self) -> [u64; Progress::WORDS] {
        [
            pair(self.snd_una.0, self.snd_nxt.0),
            pair(self.snd_edge.0, self.snd_wl1.0),
            pair(self.max_window, self.rcv_nxt.0),
            pair(self.rcv_edge.0, self.rcv_acked.0),
            pair(self.ts_recent, self.ts_known),
            pair(self.cwnd, self.ssthresh),
            pair(self.srtt, self.rttvar),
        ]
    }

    /// The value of these words.
    pub const fn from_words(words: [u64; Progress::WORDS]) -> Progress {
        let [unacked, window, received, promised, timestamp, congestion, rtt] = words;
        Progress {
            snd_una: Seq(low(unacked)),
            snd_nxt: Seq(high(unacked)),
            snd_edge: Seq(low(window)),
            snd_wl1: Seq(high(window)),
            max_window: low(received),
            rcv_nxt: Seq(high(received)),
            rcv_edge: Seq(low(promised)),
            rcv_acked: Seq(high(promised)),
            ts_recent: low(timestamp),
            ts_known: high(timestamp),
            cwnd: low(congestion),
            ssthresh: high(congestion),
            srtt: low(rtt),
            rttvar: high(rtt),
        }
    }

    /// Bytes that are sent and not acknowledged.
    #[inline]
    pub const fn in_flight(&self) -> u32 {
        self.snd_nxt.since(self.snd_una)
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// What makes a saved state one that no connection can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved state of a connection is impossible: {0}; the record is damaged, and the connection must be reset")]
pub struct Impossible(pub &'static str);

/// A ring is no larger, so that every position in it can be compared with every other.
const LARGEST_RING: u32 = 1 << 30;
/// RFC 7323, section 2.3.
const LARGEST_SCALE: u8 = 14;

impl Saved {
    /// Whether a connection can have this state.
    pub fn check(&self) -> Result<(), Impossible> {
        self.agreed.check()?;
        self.progress.check(&self.agreed)
    }
}

impl Agreed {
    fn check(&self) -> Result<(), Impossible> {
        let is_ring = |size: u32| (1..=LARGEST_RING).contains(&size);
        if !is_ring(self.send_ring) || !is_ring(self.receive_ring) {
            return Err(Impossible("the size of a ring"));
        }
        if self.send_scale > LARGEST_SCALE || self.receive_scale > LARGEST_SCALE {
            return Err(Impossible("the scale of a window"));
        }
        // Else a window that is rounded down might stay closed for ever.
        if self.receive_ring < 2 << self.receive_scale {
            return Err(Impossible("a receive ring of less than two steps of the window"));
        }
        if !(1..=u32::from(u16::MAX)).contains(&self.mss) {
            return Err(Impossible("the maximum segment size"));
        }
        Ok(())
    }
}

impl Progress {
    fn check(&self, agreed: &Agreed) -> Result<(), Impossible> {
        if self.in_flight() > agreed.send_ring {
            return Err(Impossible("more bytes in flight than the send ring holds"));
        }
        if self.rcv_edge.since(self.rcv_nxt) > agreed.receive_ring {
            return Err(Impossible("a promised window that the receive ring does not hold"));
        }
        if self.rcv_nxt.since(self.rcv_acked) > LARGEST_RING {
            return Err(Impossible("more acknowledged than received"));
        }
        if self.snd_edge.since_or_zero(self.snd_una) > LARGEST_RING || self.max_window > LARGEST_RING {
            return Err(Impossible("a window beyond RFC 7323's limit"));
        }
        if self.cwnd == 0 {
            return Err(Impossible("a congestion window of no segment"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_each_field() {
        let words = std::array::from_fn(|n| pair(2 * n as u32 + 1, 2 * n as u32 + 2));
        let progress = Progress::from_words(words);
        assert_eq!(progress.words(), words);
        assert_eq!((progress.snd_una, progress.rcv_nxt, progress.rttvar), (Seq(1), Seq(6), 14));
    }

    #[test]
    fn the_clock_counts_milliseconds() {
        let agreed = Agreed { timestamp_offset: u32::MAX, ..Agreed::default() };
        assert_eq!(agreed.timestamp(1_999), 0);
        assert_eq!(agreed.timestamp(2_000), 1);
    }
}
