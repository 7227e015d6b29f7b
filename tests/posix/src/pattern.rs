//! The contents of every stream: each byte tells its stream and position.
//!
//! A stream is a sequence of 8-byte words; word `i` of stream `s` is a reversible mix of (s, i). So a reader that finds a wrong
//! byte can report where that byte comes from: a later position (bytes were lost), an earlier one (bytes came twice), or
//! another stream.

/// The finisher of splitmix64, a bijection on 64-bit words.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The inverse of [`mix`].
fn unmix(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

/// Streams are numbered from 1, and words are below 2^40: anything else belongs to no stream.
const INDEX_BITS: u32 = 40;
const STREAMS: u64 = 1 << 12;

/// The contents of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    stream: u64,
}

impl Pattern {
    /// Each direction of each connection of a case has a number of its own, from 1 on.
    pub fn new(stream: u64) -> Pattern {
        assert!((1..STREAMS).contains(&stream), "stream numbers are 1 to {STREAMS}");
        Pattern { stream }
    }

    fn word(self, index: u64) -> [u8; 8] {
        mix(self.stream << INDEX_BITS | index).to_le_bytes()
    }

    /// Writes the stream's bytes from position `at` on.
    pub fn fill(self, at: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let (index, skip) = ((at + done as u64) / 8, ((at + done as u64) % 8) as usize);
            let n = (8 - skip).min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&self.word(index)[skip..skip + n]);
            done += n;
        }
    }

    /// `n` bytes from position `at` on.
    pub fn bytes(self, at: u64, n: usize) -> Vec<u8> {
        let mut buf = vec![0; n];
        self.fill(at, &mut buf);
        buf
    }

    /// Compares the bytes that arrived at position `at`. Err: what is wrong, and where.
    pub fn check(self, at: u64, got: &[u8]) -> Result<(), String> {
        let want = self.bytes(at, got.len());
        match want.iter().zip(got).position(|(w, g)| w != g) {
            None => Ok(()),
            Some(k) => Err(self.diagnose(at + k as u64, &got[k..])),
        }
    }

    fn diagnose(self, at: u64, wrong: &[u8]) -> String {
        let place = format!("stream {}: wrong from byte {at} on", self.stream);
        match origin(wrong) {
            Some((stream, from)) if stream != self.stream => {
                format!("{place}: these are bytes {from}.. of stream {stream}")
            }
            Some((_, from)) if from > at => {
                format!("{place}: {} bytes are missing (byte {from} follows)", from - at)
            }
            Some((_, from)) => {
                format!("{place}: {} bytes came twice or late (it goes on with byte {from})", at - from)
            }
            None => format!("{place}: bytes of no stream: {:02x?}", &wrong[..wrong.len().min(16)]),
        }
    }
}

/// Finds the (stream, position) that a piece of data belongs to, trying each word alignment.
fn origin(data: &[u8]) -> Option<(u64, u64)> {
    (0..8).find_map(|skip| {
        let word = data.get(skip..skip + 8)?.try_into().ok()?;
        let key = unmix(u64::from_le_bytes(word));
        let (stream, index) = (key >> INDEX_BITS, key & ((1 << INDEX_BITS) - 1));
        let position = (index * 8).checked_sub(skip as u64)?;
        ((1..STREAMS).contains(&stream) && index < 1 << 32).then_some((stream, position))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmix_undoes_mix() {
        for word in [0, 1, 7, u64::MAX, 0x0123_4567_89ab_cdef] {
            assert_eq!(unmix(mix(word)), word);
        }
    }

    #[test]
    fn right_bytes_pass_at_any_cut() {
        let pattern = Pattern::new(3);
        for at in 0..20 {
            assert_eq!(pattern.check(at, &pattern.bytes(at, 41)), Ok(()));
        }
    }

    /// Lost bytes, repeated bytes, mixed streams and garbage are distinguished, with exact positions.
    #[test]
    fn wrong_bytes_are_named() {
        let pattern = Pattern::new(3);
        let stream = pattern.bytes(0, 300);
        let lost = [&stream[..100], &stream[137..]].concat();
        assert!(pattern.check(0, &lost).unwrap_err().contains("byte 100 on: 37 bytes are missing"));
        let doubled = [&stream[..100], &stream[90..]].concat();
        assert!(pattern.check(0, &doubled).unwrap_err().contains("byte 100 on: 10 bytes came twice"));
        let other = Pattern::new(4).bytes(55, 60);
        assert!(pattern.check(0, &other).unwrap_err().contains("bytes 55.. of stream 4"));
        assert!(pattern.check(0, &[0xaa; 40]).unwrap_err().contains("bytes of no stream"));
    }
}
