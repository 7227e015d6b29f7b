//! Random numbers that are the same in each run with the same seed (splitmix64).

/// A generator.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// Another generator, by this one and a value.
    pub fn with(mut self, value: u64) -> Chance {
        self.0 ^= value.wrapping_mul(0xd6e8_feb8_6659_fd93);
        Chance(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True in `rate` of 10,000 cases.
    pub fn hits(&mut self, rate: u32) -> bool {
        self.below(10_000) < u64::from(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_met() {
        let mut chance = Chance::new(7);
        let hits = (0..100_000).filter(|_| chance.hits(100)).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !chance.hits(0)) && (0..1000).all(|_| chance.hits(10_000)));
    }
}
