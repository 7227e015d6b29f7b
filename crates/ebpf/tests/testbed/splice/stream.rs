//! Streams with predictable content.

use super::world::End;
use std::io::{Read, Write};

/// xorshift64*: the same seed gives the same numbers.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 1 to `most`, with all magnitudes equally likely.
    pub fn size(&mut self, most: usize) -> usize {
        let bits = self.next() % 64;
        1 + (self.next() >> bits) as usize % most
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(length).collect()
    }
}

/// The content of a stream: each word of eight bytes identifies stream and position.
pub fn stream(number: u64, length: usize) -> Vec<u8> {
    Random::new(number ^ 0x5eed).bytes(length)
}

/// Writes the bytes in pieces of up to `most`, and shuts the direction down.
pub fn send(mut socket: &End, bytes: &[u8], most: usize, seed: u64) {
    let mut random = Random::new(seed);
    let mut left = bytes;
    while !left.is_empty() {
        let (piece, others) = left.split_at(random.size(most).min(left.len()));
        socket.write_all(piece).unwrap();
        left = others;
    }
    socket.shutdown();
}

/// Reads in pieces of up to `most` to the end, and compares.
pub fn expect(mut socket: &End, bytes: &[u8], most: usize, seed: u64) {
    let mut random = Random::new(seed);
    let (mut place, mut piece) = (0, vec![0; most]);
    loop {
        let got = socket.read(&mut piece[..random.size(most)]).unwrap();
        if got == 0 {
            assert_eq!(place, bytes.len(), "the stream ended");
            return;
        }
        let wanted = bytes.get(place..place + got).expect("no more bytes than were sent");
        assert!(piece[..got] == *wanted, "wrong bytes between {place} and {}", place + got);
        place += got;
    }
}

/// Both directions at once, to the end.
pub fn exchange(client: &End, server: &End, lengths: [usize; 2], most: usize, seed: u64) {
    let streams = [stream(2 * seed, lengths[0]), stream(2 * seed + 1, lengths[1])];
    std::thread::scope(|scope| {
        scope.spawn(|| send(client, &streams[0], most, seed));
        scope.spawn(|| send(server, &streams[1], most, seed + 1));
        scope.spawn(|| expect(server, &streams[0], most, seed + 2));
        expect(client, &streams[1], most, seed + 3);
    });
}
