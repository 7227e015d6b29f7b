//! Whether a connection carries long messages, which the kernel carries better: it gives the device segments of 64 KiB at a time.

use sidestep_sys::tcp::Traffic;

/// Bytes of one direction after which a look at the messages says something.
const WINDOW: u64 = 256 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    In,
    Out,
}

/// Counts messages: the bytes that go one way before any go the other way.
#[derive(Debug)]
pub struct Pace {
    /// Bytes of a message, on the average, above which it is long.
    limit: u64,
    /// Bytes in and out.
    bytes: [u64; 2],
    /// Changes from one way to the other. Two are a message each way.
    turns: u64,
    last: Option<Way>,
    is_bulk: bool,
}

impl Pace {
    pub fn new(limit: u64) -> Pace {
        Pace { limit, bytes: [0; 2], turns: 0, last: None, is_bulk: false }
    }

    /// So many bytes have gone this way.
    pub fn note(&mut self, way: Way, bytes: u32) {
        self.turns += u64::from(self.last.replace(way) != Some(way));
        self.bytes[way as usize] += u64::from(bytes);
        if self.bytes[way as usize] >= WINDOW {
            self.is_bulk = are_long(self.bytes, self.turns / 2, self.limit);
            (self.bytes, self.turns) = ([0; 2], 0);
        }
    }

    /// Whether the last bytes were long messages.
    pub fn is_bulk(&self) -> bool {
        self.is_bulk
    }
}

/// What the kernel has carried, as a stack sees it that looks from time to time.
#[derive(Debug, Default)]
pub struct KernelPace {
    before: Traffic,
}

impl KernelPace {
    /// Whether what the kernel has carried since an earlier look were long messages. Each message takes a segment at least, so the
    /// direction with fewer segments says how many there were at most.
    pub fn is_bulk(&mut self, now: Traffic, limit: u64) -> bool {
        if now.bytes.iter().zip(self.before.bytes).any(|(now, before)| *now < before) {
            self.before = Traffic::default(); // the kernel counts anew after a give-back
        }
        let Traffic { bytes: [read, written], segments: [came, left], .. } = self.before;
        let bytes = [now.bytes[0] - read, now.bytes[1] - written];
        let segments = now.segments[0].wrapping_sub(came).min(now.segments[1].wrapping_sub(left));
        if bytes.iter().any(|bytes| *bytes >= WINDOW) {
            self.before = now;
        }
        are_long(bytes, u64::from(segments), limit)
    }
}

/// Whether so many messages each way, of so many bytes, are long ones. One that has begun counts.
fn are_long(bytes: [u64; 2], messages: u64, limit: u64) -> bool {
    bytes[0].max(bytes[1]) / (messages + 1) > limit
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 8192;

    fn after(message: u32, answer: u32) -> bool {
        let mut pace = Pace::new(LIMIT);
        for _ in 0..2 * WINDOW / u64::from(message) {
            for _ in 0..message / 1000 {
                pace.note(Way::Out, 1000);
            }
            if answer > 0 {
                pace.note(Way::In, answer);
            }
        }
        pace.is_bulk()
    }

    #[test]
    fn long_messages_one_way_or_both_and_streams_are_bulk() {
        assert!(!after(1000, 100) && !after(8000, 100) && !after(4000, 4000));
        assert!(after(16000, 100) && after(64000, 100) && after(16000, 16000) && after(1000, 0));
    }

    /// `messages` of `out` bytes each, and answers of `back` bytes, in segments of 1448 bytes.
    fn carried(messages: u64, out: u64, back: u64) -> Traffic {
        let segments = |bytes: u64| (messages * bytes.div_ceil(1448)) as u32;
        let (bytes, segments) = ([messages * back, messages * out], [segments(back), segments(out)]);
        Traffic { bytes, segments, ..Traffic::default() }
    }

    #[test]
    fn the_kernels_counts_tell_long_messages_from_the_first() {
        let is_bulk = |traffic| KernelPace::default().is_bulk(traffic, LIMIT);
        assert!(!is_bulk(carried(1, 128, 0)) && !is_bulk(carried(8, 100, 4000)) && !is_bulk(carried(1000, 4000, 4000)));
        assert!(is_bulk(carried(8, 100, 16000)) && is_bulk(carried(8, 16000, 100)) && is_bulk(carried(1, 1 << 20, 0)));
    }

    #[test]
    fn what_was_long_is_forgotten() {
        let mut pace = KernelPace::default();
        let long = carried(100, 100, 64000);
        assert!(pace.is_bulk(long, LIMIT));
        let later = |messages| {
            let short = carried(messages, 128, 128);
            Traffic {
                bytes: [long.bytes[0] + short.bytes[0], long.bytes[1] + short.bytes[1]],
                segments: [long.segments[0] + short.segments[0], long.segments[1] + short.segments[1]],
                ..long
            }
        };
        assert!(!pace.is_bulk(later(1), LIMIT) && !pace.is_bulk(later(50), LIMIT));
        assert!(!pace.is_bulk(carried(10, 128, 128), LIMIT), "after a give-back the kernel counts anew");
    }
}
