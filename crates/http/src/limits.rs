//! How much of the process a stranger may use.

use std::time::Duration;

/// What one server permits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. A new one replaces the oldest that has not sent its request yet, or else the oldest that wants metrics.
    pub open: usize,
    /// Bytes of a request's head; 8 KiB at least.
    pub head: usize,
    /// Time from the connection to the end of the request's head.
    pub until_asked: Duration,
    /// Time from the connection to its end.
    pub until_answered: Duration,
}

/// Prometheus gives up after ten seconds by default.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            open: 64,
            head: 16 * 1024,
            until_asked: Duration::from_secs(5),
            until_answered: Duration::from_secs(10),
        }
    }
}
