//! Pseudo-random bytes that can be computed at any position.

pub struct Source {
    seed: u64,
    position: u64,
}

impl Source {
    pub fn at(seed: u64, position: u64) -> Source {
        Source { seed, position }
    }

    pub fn next(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        let mut word = self.position / 8;
        let skip = (self.position % 8) as usize;
        while bytes.len() < len + skip {
            bytes.extend(mix(self.seed.wrapping_add(word)).to_ne_bytes());
            word += 1;
        }
        self.position += len as u64;
        bytes.drain(..skip);
        bytes.truncate(len);
        bytes
    }
}

/// A number that looks random (splitmix64).
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
