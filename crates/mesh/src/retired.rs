//! Entries that have been replaced, but may still be read by a program that found them a moment ago.

/// Entries that will be freed later.
#[derive(Debug, Default)]
pub struct Garbage {
    /// First element and length.
    pub ranges: Vec<(u32, u32)>,
    /// Numbers of backends without users.
    pub backends: Vec<u32>,
    /// Numbers of ports of Services that are gone.
    pub services: Vec<u32>,
}

impl Garbage {
    /// Whether nothing would be freed.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.backends.is_empty() && self.services.is_empty()
    }

    fn append(&mut self, mut other: Garbage) {
        self.ranges.append(&mut other.ranges);
        self.backends.append(&mut other.backends);
        self.services.append(&mut other.services);
    }
}

/// How long after its replacement an entry is surely not read any more, in nanoseconds. A program runs for microseconds; the
/// length lets one wait for readers serve everything that was replaced in this time.
pub const REST_NS: u64 = 1_000_000_000;

/// Garbage by the time of its replacement, the oldest first.
#[derive(Debug, Default)]
pub struct Retired {
    waiting: Vec<(u64, Garbage)>,
}

impl Retired {
    /// `now_ns` must not be before that of an earlier call.
    pub fn add(&mut self, now_ns: u64, garbage: Garbage) {
        if !garbage.is_empty() {
            self.waiting.push((now_ns, garbage));
        }
    }

    /// When the next entries are due.
    pub fn due_ns(&self) -> Option<u64> {
        self.waiting.first().map(|(since, _)| since + REST_NS)
    }

    /// Removes and returns the entries that are due.
    pub fn collect(&mut self, now_ns: u64) -> Garbage {
        let count = self.waiting.iter().take_while(|(since, _)| since + REST_NS <= now_ns).count();
        let mut all = Garbage::default();
        self.waiting.drain(..count).for_each(|(_, garbage)| all.append(garbage));
        all
    }
}
