//! What has been replaced, but may still be read by a program that found it a moment ago.

/// Things that go back to where they came from, some time later.
#[derive(Debug, Default)]
pub struct Garbage {
    /// First place and length.
    pub ranges: Vec<(u32, u32)>,
    pub backends: Vec<u32>,
    pub services: Vec<u32>,
}

impl Garbage {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.backends.is_empty() && self.services.is_empty()
    }

    fn append(&mut self, mut other: Garbage) {
        self.ranges.append(&mut other.ranges);
        self.backends.append(&mut other.backends);
        self.services.append(&mut other.services);
    }
}

/// How long after its end something is surely not read any more, in nanoseconds. A program runs for microseconds; the
/// wait for readers is made for all that has come together in this time.
pub const REST_NS: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub struct Retired {
    waiting: Vec<(u64, Garbage)>,
}

impl Retired {
    pub fn add(&mut self, now_ns: u64, garbage: Garbage) {
        if !garbage.is_empty() {
            self.waiting.push((now_ns, garbage));
        }
    }

    /// When the next thing has rested.
    pub fn due_ns(&self) -> Option<u64> {
        self.waiting.first().map(|(since, _)| since + REST_NS)
    }

    /// Everything that has rested.
    pub fn collect(&mut self, now_ns: u64) -> Garbage {
        let count = self.waiting.iter().take_while(|(since, _)| since + REST_NS <= now_ns).count();
        let mut all = Garbage::default();
        self.waiting.drain(..count).for_each(|(_, garbage)| all.append(garbage));
        all
    }
}
