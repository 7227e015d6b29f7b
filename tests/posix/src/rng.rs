//! Pseudo-random choices that repeat for the same seed (splitmix64).

/// The seed and the number of earlier choices determine every choice.
pub struct Rng(u64);

impl Rng {
    /// Any seed is good, 0 too.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Any 64-bit number, all equally likely.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::pattern::mix(self.0)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// All elements are equally likely; panics if there are none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// A size from 1 to `most`; small ones and large ones come equally often.
    pub fn size(&mut self, most: u64) -> usize {
        let bits = 64 - most.leading_zeros() as u64;
        let limit = 1 << (1 + self.below(bits));
        (1 + self.below(limit).min(most - 1)) as usize
    }

    /// Sometimes pauses, for at most 200 microseconds, so that the other side gets ahead or falls behind.
    pub fn pause(&mut self) {
        if self.below(16) == 0 {
            std::thread::sleep(std::time::Duration::from_micros(self.below(200)));
        }
    }
}

/// The seed of this run: `SIDESTEP_POSIX_SEED`, or 1.
pub fn run_seed() -> u64 {
    std::env::var("SIDESTEP_POSIX_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}
