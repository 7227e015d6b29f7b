//! The fuzzer of those who have none: a generator with a fixed seed.

/// Runs a body on `runs` inputs of up to `max` bytes, always the same ones.
pub fn repeat(runs: usize, max: usize, mut body: impl FnMut(&[u8])) {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut data = Vec::with_capacity(max);
    for run in 0..runs {
        data.clear();
        data.extend((0..1 + run * 37 % max).map(|_| {
            // xorshift64 of Marsaglia
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        }));
        body(&data);
    }
}
