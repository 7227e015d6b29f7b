//! The memory of a connection that outlives its worker, with a fuse: the worker is killed at the store that burns it.
#![allow(dead_code)] // each body uses its part

use sidestep_tcp::{Memory, Progress, Seq};

/// Receive ring and record.
pub struct Store {
    pub words: [u64; Progress::WORDS],
    pub ring: Vec<u8>,
    /// Stores that the worker still makes. `None`: it lives.
    fuse: Option<u32>,
    /// In which order it stores the words of a record: the first one, and the distance to the next.
    order: (usize, usize),
}

impl Store {
    /// `size`: bytes of the ring, a power of two.
    pub fn new(progress: Progress, size: u32) -> Store {
        assert!(size.is_power_of_two());
        Store { words: progress.words(), ring: vec![0; size as usize], fuse: None, order: (0, 1) }
    }

    pub fn progress(&self) -> Progress {
        Progress::from_words(self.words)
    }

    /// The worker is killed after this many stores.
    pub fn kill_after(&mut self, stores: u32, first: usize, distance: usize) {
        self.fuse = Some(stores);
        // The number of words is a prime, so each distance reaches all of them.
        self.order = (first % Progress::WORDS, 1 + distance % (Progress::WORDS - 1));
    }

    /// Whether the worker lives to make its next store, or to send its next frame.
    pub fn lives(&mut self) -> bool {
        match &mut self.fuse {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    pub fn is_dead(&self) -> bool {
        self.fuse == Some(0)
    }

    /// A new worker takes over.
    pub fn revive(&mut self) {
        self.fuse = None;
    }

    /// The byte at this place of the receive ring.
    pub fn byte(&self, at: Seq) -> u8 {
        self.ring[at.0 as usize & (self.ring.len() - 1)]
    }
}

impl Memory for Store {
    fn put(&mut self, at: Seq, bytes: &[u8]) {
        let progress = self.progress();
        assert!(!bytes.is_empty() && at == progress.rcv_nxt, "bytes go where the next ones are due");
        assert!(bytes.len() as u32 <= progress.rcv_edge.since(at), "bytes stay in the promised window");
        for (n, byte) in bytes.iter().enumerate() {
            if !self.lives() {
                return;
            }
            let place = at.plus(n as u32).0 as usize & (self.ring.len() - 1);
            self.ring[place] = *byte;
        }
    }

    fn publish(&mut self, progress: &Progress) {
        let (first, distance) = self.order;
        for n in 0..Progress::WORDS {
            if !self.lives() {
                return;
            }
            let word = (first + n * distance) % Progress::WORDS;
            self.words[word] = progress.words()[word];
        }
    }
}
