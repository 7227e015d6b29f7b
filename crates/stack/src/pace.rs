//! Whether a connection carries bulk, which the kernel carries better: it gives the device segments of 64 KiB at a time.

/// Bytes after which a look at the messages says something.
const WINDOW: u64 = 1 << 20;
/// Bytes of a message, on the average, from which on a connection counts as bulk.
const BULK: u64 = 8 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    In,
    Out,
}

/// Counts messages: the bytes that go one way before any go the other way.
#[derive(Debug, Default)]
pub struct Pace {
    bytes: u64,
    messages: u64,
    last: Option<Way>,
    is_bulk: bool,
}

impl Pace {
    /// So many bytes have gone this way.
    pub fn note(&mut self, way: Way, bytes: u32) {
        self.messages += u64::from(self.last != Some(way));
        self.last = Some(way);
        self.bytes += u64::from(bytes);
        if self.bytes >= WINDOW {
            self.is_bulk = self.bytes / self.messages.max(1) > BULK;
            (self.bytes, self.messages) = (0, 0);
        }
    }

    /// Whether the last bytes were bulk.
    pub fn is_bulk(&self) -> bool {
        self.is_bulk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(message: u32, both: bool) -> bool {
        let mut pace = Pace::default();
        for _ in 0..2 * WINDOW / u64::from(message) {
            for _ in 0..message / 1000 {
                pace.note(Way::Out, 1000);
            }
            if both {
                pace.note(Way::In, 100);
            }
        }
        pace.is_bulk()
    }

    #[test]
    fn long_messages_and_streams_are_bulk() {
        assert!(!after(1000, true) && !after(8000, true));
        assert!(after(64000, true) && after(1000, false));
    }
}
